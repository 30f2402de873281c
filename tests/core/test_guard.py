"""The guard's rules, as a table of what people and agents type."""

from __future__ import annotations

import functools
import re

import pytest

from gpuq.adapters.bashparse import Parser
from gpuq.core.guard.files import judge_edit, patched_files
from gpuq.core.guard.rules import judge_command
from gpuq.core.guard.scene import Scene, Use, Verdict

PROJECT = "/home/ada/net"
RUNS = f"{PROJECT}/runs"
TAGS = {"base": Use.IDLE, "dino/lr3e-4": Use.WAITING, "now": Use.RUNNING, "away": Use.UNKNOWN}
FILES = {
    f"{PROJECT}/launch.sh": "#!/bin/bash\nset -e\nsbatch --gres=gpu:1 runs/base/job.sh\n",
    f"{PROJECT}/build.sh": "#!/bin/bash\nmake -j8\n",
    f"{PROJECT}/ml/Makefile": """
PY ?= python3
SCRIPT := ../src/fit.py
.PHONY: all
all: model.pt
model.pt: data.csv
\t@$(PY) $(SCRIPT) --data $< \\
\t    --out $@
data.csv: ; ./download > $@
test:
\tpytest -k train
submit:
\tsbatch x.sh
queue-%:
\tsbatch $*.sh
""",
    f"{RUNS}/base/job.sh": "#!/bin/bash\nexec gpuq run -- python src/fit.py\n",
}
parser = functools.cache(Parser)  # not while tests are collected: where they run without the extra, others are wanted


def tag_of(path: str) -> str | None:
    """The run that a path lies in."""
    for tag in TAGS:
        if path == f"{RUNS}/{tag}" or path.startswith(f"{RUNS}/{tag}/"):
            return tag
    return None


def glob(pattern: str) -> list[str]:
    """The runs' files and directories that a pattern stands for; `*` does not cross a slash, `**` does."""
    rough = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    known = [f"{RUNS}/{tag}/{name}" for tag in TAGS for name in ("job.sh", "slurm/attempt1.out")]
    known += [f"{RUNS}/{tag}" for tag in TAGS]
    return [path for path in known if re.fullmatch(rough, path)]


def scene(**changes: object) -> Scene:
    """A project with four runs and two scripts."""
    values = {
        "cwd": PROJECT,
        "project": PROJECT,
        "runs": RUNS,
        "use": TAGS.__getitem__,
        "tag": tag_of,
        "read": FILES.get,
        "home": "/home/ada",
        "glob": glob,
        "trained": lambda: frozenset({"src/fit.py"}),
        **changes,
    }
    return Scene(**values)  # type: ignore[arg-type]


def judge(command: str, **changes: object) -> Verdict:
    """The verdict on one command line."""
    return judge_command(command, parser(), scene(**changes))


BY_HAND = [
    "sbatch runs/base/job.sh",
    "sbatch --gres=gpu:1 runs/base/job.sh",
    "/usr/bin/sbatch job.sh",
    "$HOME/bin/sbatch job.sh",
    r"\sbatch job.sh",
    's"bat"ch job.sh',
    "'sbatch' job.sh",
    "cd runs && sbatch base/job.sh",
    "true; false || sbatch x.sh",
    "(sbatch x.sh)",
    "{ sbatch x.sh; }",
    "sbatch x.sh &",
    "! sbatch x.sh",
    "if true; then sbatch x.sh; fi",
    "for i in 1 2 3; do sbatch run$i.sh; done",
    "while read f; do sbatch $f; done < list",
    "case $x in a) sbatch x.sh;; esac",
    "f() { sbatch x.sh; }; f",
    "FOO=1 BAR=2 sbatch x.sh",
    "env FOO=1 sbatch x.sh",
    "env -u SLURM_CONF -- sbatch x.sh",
    "env -S 'sbatch x.sh'",
    "sudo -u bob sbatch x.sh",
    "sudo FOO=1 sbatch x.sh",
    "nohup sbatch x.sh",
    "setsid -f sbatch x.sh",
    "nice -n 10 sbatch x.sh",
    "timeout -k 5 10 sbatch x.sh",
    "time sbatch x.sh",
    "exec sbatch x.sh",
    "command sbatch x.sh",
    "builtin command sbatch x.sh",
    "stdbuf -oL sbatch x.sh",
    "bash -c 'sbatch x.sh'",
    'bash -lc "sbatch x.sh"',
    "sh -e -c 'sbatch x.sh'",
    "bash -c \"bash -c 'sbatch x.sh'\"",
    "bash -c $'sbatch\\tx.sh'",
    "eval 'sbatch x.sh'",
    'eval "sb""atch x.sh"',
    "bash <<< 'sbatch x.sh'",
    "bash <<'E'\nsbatch x.sh\nE",
    "cat <<E | bash\nsbatch x.sh\nE",
    "echo 'sbatch x.sh' | bash",
    "printf 'sbatch x.sh\\n' | sh -s",
    "S=sbatch; $S x.sh",
    "export S=sbatch; ${S} x.sh",
    "$(which sbatch) x.sh",
    "`command -v sbatch` x.sh",
    "$(echo sbatch) x.sh",
    "alias q=sbatch; q x.sh",
    "ls *.sh | xargs -n1 sbatch",
    "find . -name '*.sh' -exec sbatch {} \\;",
    "parallel sbatch ::: a.sh b.sh",
    "watch -n 60 'sbatch x.sh'",
    "flock /tmp/l sbatch x.sh",
    "flock /tmp/l -c 'sbatch x.sh'",
    "tmux new-session -d -s t 'sbatch x.sh'",
    "tmux send-keys -t t 'sbatch x.sh' Enter",
    "screen -dmS t sbatch x.sh",
    "echo $(sbatch --parsable x.sh)",
    "id=$(sbatch --parsable x.sh)",
    "cat <(sbatch x.sh)",
    "cat <<E\n$(sbatch x.sh)\nE",
    "bash launch.sh",
    "./launch.sh",
    "source launch.sh",
    ". ./launch.sh",
    "sbatch <<E\n#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\nE",
    "sbatch --wrap 'python train.py'",
    "python -c \"import os; os.system('sbatch x.sh')\"",
    'python3 -c \'import subprocess; subprocess.run(["sbatch", "x.sh"])\'',
    "srun --gres=gpu:1 --pty bash",
    "srun -G1 python x.py",
    "srun --gpus 1 hostname",
    "srun python train.py",
    "salloc --gres=gpu:1",
    "salloc -G 1 bash",
    "conda run -n t sbatch x.sh",
    "uv run sbatch x.sh",
    "cat x.sh | sbatch",
    'cmd="sbatch x.sh"; $cmd',
    'CMD=(sbatch x.sh); "${CMD[@]}"',
    "${SBATCH:-sbatch} x.sh",
    "bash -euo pipefail -c 'sbatch x.sh'",
    "bash -s -- a <<'E'\nsbatch x.sh\nE",
    "bash -c \"$(cat <<'E'\nsbatch x.sh\nE\n)\"",
    "cat > go.sh <<'E'\nsbatch x.sh\nE\nbash go.sh",
    "echo 'sbatch x.sh' > go.sh && bash go.sh",
    "cat > go.sh <<'E' && bash go.sh\nsbatch x.sh\nE",
    "cat launch.sh | bash",
    "bash < launch.sh",
    "ssh localhost sbatch x.sh",
    "ssh -t host 'cd net && sbatch x.sh'",
    "su - ada -c 'sbatch x.sh'",
    "sudo -iu bob sbatch x.sh",
    "script -qc 'sbatch x.sh' /dev/null",
    "fish -c 'sbatch x.sh'",
    "trap 'sbatch x.sh' EXIT",
    "echo 'sbatch x.sh' | at now + 5 minutes",
    "crontab - <<< '* * * * * sbatch x.sh'",
    "read id < <(sbatch a.sh)",
    'echo a > "$(sbatch x.sh)"',
    "declare -r J=$(sbatch x.sh)",
    "python3 -c \"from subprocess import run; run(['sbatch']+['x.sh'])\"",
    "python3 -c \"import subprocess; [subprocess.run(['sbatch', f'{i}.sh']) for i in range(3)]\"",
    "python3 -c \"import subprocess; subprocess.run('sbatch {}'.format(1), shell=True)\"",
    "python3 -c \"from subprocess import Popen; Popen('sbatch x.sh'.split())\"",
    "python3 - <<'E'\nimport os\nos.system('sbatch x.sh')\nE",
    "cat > go.py <<'E'\nimport os\nos.system('sbatch x.sh')\nE\npython go.py",
    "srun bash -c 'python train.py'",
    "srun -n 1 torchrun x.py",
    "srun --ntasks 1 python src/fit.py",
    "(crontab -l; echo '0 * * * * sbatch x.sh') | crontab -",
    "{ echo ls; echo sbatch x.sh; } | bash",
    'JOB=runs/base/job.sh; sbatch "$JOB"',
    'git commit -m "refuse `sbatch x.sh`"',
    "make -C ml submit",
    "cd ml && make submit -j2",
    "make -f ml/Makefile submit",
    "perl -e 'system(\"sbatch x.sh\")'",
    'perl -we \'exec "sbatch", "x.sh"\'',
    "perl -e 'print `sbatch x.sh`'",
    'ruby -e \'system("sbatch", "x.sh")\'',
    'node -e \'require("child_process").execSync("sbatch x.sh")\'',
    "awk 'BEGIN{system(\"sbatch x.sh\")}'",
    "Rscript -e 'system(\"sbatch x.sh\")'",
    "chronic sbatch x.sh",
    "prlimit --nofile=10 sbatch x.sh",
    "pkexec --user bob sbatch x.sh",
    "sg lab -c 'sbatch x.sh'",
    "setpriv --reuid 1000 sbatch x.sh",
    "dbus-run-session -- sbatch x.sh",
    "ls *.sh | entr sbatch x.sh",
    "echo sbatch x.sh | xargs -I% sh -c %",
    "echo 'sbatch x.sh' | xargs env",
    "ls | xargs --replace=F sbatch F",
]
BARE = [
    "python train.py",
    "python3.11 -u train.py --lr 1e-3",
    "python src/fit.py",
    "cd src && python fit.py",
    "python -m pkg.train",
    "python -m torch.distributed.run --nproc 1 x.py",
    "CUDA_VISIBLE_DEVICES=0 python train.py",
    "nohup python train.py > log 2>&1 &",
    "tmux new -d 'python train.py'",
    "setsid python train.py",
    "uv run train.py",
    "uv run --with torch python train.py",
    "poetry run python train.py",
    "conda run -n t --no-capture-output python train.py",
    "micromamba run -n t python train.py",
    "nix develop -c python train.py",
    "nix-shell --run 'python train.py'",
    "torchrun --nproc-per-node 1 x.py",
    "accelerate launch x.py",
    "deepspeed x.py",
    "./train.py",
    "apptainer exec --nv i.sif python train.py",
    "docker run --gpus all image",
    "systemd-run --user python train.py",
    "gpuq run -- python train.py",
    "python scripts/finetune_llm.py",
    "env PYTHONPATH=. python train.py",
    "(cd runs && ls); python src/fit.py",
    "cd runs && ls; cd ..; python src/fit.py",
    "pushd src; python fit.py",
    "env -C src python fit.py",
    "uv run --directory src python fit.py",
    "python $PWD/src/fit.py",
    'python "$(pwd)/src/fit.py"',
    "python ~/net/src/fit.py",
    "for s in 1 2; do python train.py --seed $s; done",
    "export CUDA_VISIBLE_DEVICES=0; python train.py",
    "CUDA_VISIBLE_DEVICES=-1; python train.py",
    "python < train.py",
    "cat train.py | python -",
    "python -c \"exec(open('train.py').read())\"",
    'python -c "import train; train.main()"',
    "python -m cProfile -o x train.py",
    "python -m pdb train.py",
    "python -m accelerate launch x.py",
    "uv run -m pkg.train",
    "coverage run train.py",
    "py-spy record -o x -- python train.py",
    "nsys profile -o x --force-overwrite true python train.py",
    "xvfb-run python train.py",
    "mise x -- python train.py",
    "dotenv run python train.py",
    "docker run --device nvidia.com/gpu=all img",
    "docker run --device /dev/nvidia0 img",
    "nerdctl run --gpus all img",
    "papermill train.ipynb out.ipynb",
    "jupyter nbconvert --to notebook --execute train.ipynb",
    "python main_train.py",
    "make -C ml",
    "make -C ml all PY=python3.11",
    "make --directory=ml model.pt",
    "ssh localhost python train.py",
    "ssh -p 22 ada@127.0.0.1 'cd net && python train.py'",
    "ssh localhost 'cd net/src && python fit.py'",
    "python -um train",
    "python3 -Im pkg.train",
    "python -m fire train.py main",
    "jupyter run train.ipynb",
    "uvx --from torch torchrun x.py",
    "uv tool run --from torch torchrun x.py",
    "pipx run torchrun x.py",
    "watchexec -w src python train.py",
    "cpulimit -l 50 python train.py",
    "setarch -R python train.py",
    "python fine_tune.py",
    "python TrainModel.py",
]
RUN_BY_HAND = [
    "bash runs/base/job.sh",
    "./runs/base/job.sh",
    "cd runs/base; bash job.sh",
    "source runs/base/job.sh",
    "bash < runs/base/job.sh",
    "cat runs/base/job.sh | bash",
    "for r in runs/*/job.sh; do bash $r; done",
    "for t in base now; do bash runs/$t/job.sh; done",
    "srun runs/base/job.sh",
    "find runs -name job.sh -exec bash {} \\;",
    "find . -name job.sh | xargs -n1 bash",
    "for f in $(find runs -name job.sh); do bash $f; done",
]
CANCEL_ALL = [
    "scancel -u ada",
    "scancel -uada",
    "scancel --user=$USER",
    "scancel --me",
    "scancel --state=PENDING",
    "scancel -p gpu",
    "scancel $(squeue -u ada -h -o %i)",
    "squeue -h -o %i | xargs scancel",
    "sudo scancel -u ada",
    "bash -c 'scancel -u ada'",
    "scancel -fu ada",
    "for j in $(squeue -h -o %i); do scancel $j; done",
    "squeue -h -o %i | while read j; do scancel $j; done",
    "ids=$(squeue -u ada -h -o %A | tr '\\n' ' ') && scancel $ids",
    "squeue --me -h -o %A | parallel scancel",
    "ssh host scancel -u ada",
    "python -c \"import subprocess; subprocess.run('scancel -u ada', shell=True)\"",
]
EDITS = [
    "echo x > runs/dino/lr3e-4/job.sh",
    "echo x >> runs/dino/lr3e-4/config.yaml",
    "cat > runs/dino/lr3e-4/job.sh <<E\nx\nE",
    "sed -i s/1/2/ runs/dino/lr3e-4/job.sh",
    "sed --in-place=.bak s/1/2/ runs/dino/lr3e-4/job.sh",
    "perl -pi -e s/1/2/ runs/dino/lr3e-4/job.sh",
    "echo x | tee -a runs/dino/lr3e-4/job.sh",
    "cp a.sh runs/dino/lr3e-4/job.sh",
    "cp job.sh runs/dino/lr3e-4/",
    "mv a.sh runs/dino/lr3e-4/job.sh",
    "cd runs/dino/lr3e-4 && sed -i s/1/2/ job.sh",
    f"truncate -s0 {RUNS}/dino/lr3e-4/job.sh",
    "git checkout -- runs/dino/lr3e-4/job.sh",
    "sed -i s/1/2/ runs/now/job.sh",
    "rm runs/dino/lr3e-4/job.sh",
    "dd if=/dev/zero of=runs/dino/lr3e-4/job.sh",
    "bash -c 'echo x > runs/dino/lr3e-4/job.sh'",
    "apply_patch <<'E'\n*** Begin Patch\n*** Update File: runs/dino/lr3e-4/job.sh\n@@\n-a\n+b\n*** End Patch\nE",
    "cat <<'E' > runs/dino/lr3e-4/job.sh\nx\nE",
    "cat <<E >> runs/dino/lr3e-4/job.sh\nx\nE",
    "tee runs/dino/lr3e-4/job.sh >/dev/null <<'E'\nx\nE",
    "D=runs/dino/lr3e-4; sed -i s/a/b/ $D/job.sh",
    "for t in base dino/lr3e-4; do sed -i s/a/b/ runs/$t/job.sh; done",
    "sed -i s/a/b/ runs/*/*/job.sh",
    "sed -i s/a/b/ runs/dino/lr3e-4/{job.sh,config.yaml}",
    "awk -i inplace '{print}' runs/dino/lr3e-4/job.sh",
    "find runs -name job.sh -exec sed -i s/1/2/ {} +",
    "find . -name job.sh -type f -print0 | xargs -0 sed -i s/1/2/",
    "sed -i s/1/2/ $(find runs/dino -name job.sh)",
    "find runs -name job.sh | xargs -I F cp new.sh F",
    "sort -o runs/dino/lr3e-4/list x",
    "black runs/dino/lr3e-4/model.py",
    "ruff format runs/dino/lr3e-4/model.py",
    "shfmt -w runs/dino/lr3e-4/job.sh",
    "git stash push runs/dino/lr3e-4/job.sh",
    "ssh localhost 'echo x > net/runs/dino/lr3e-4/job.sh'",
    "cp -t runs/dino/lr3e-4 a.sh",
    "git -C runs/dino/lr3e-4 checkout -- job.sh",
    "curl -o runs/dino/lr3e-4/job.sh http://x",
    "sed s/a/b/ x | sponge runs/dino/lr3e-4/job.sh",
    "patch -p1 <<'E'\n--- a/runs/dino/lr3e-4/job.sh\n+++ b/runs/dino/lr3e-4/job.sh\n@@ -1 +1 @@\n-a\n+b\nE",
    "python -c \"open('runs/dino/lr3e-4/job.sh', 'w').write('x')\"",
    "python3 - <<'E'\nfrom pathlib import Path\np = Path('runs') / 'dino/lr3e-4' / 'job.sh'\np.write_text('x')\nE",
]
RECORDS = [
    "rm -rf runs/base/slurm",
    "echo x > runs/base/slurm/attempt1.out",
    "sed -i s/1/2/ runs/base/slurm/attempt1.json",
    "rm runs/base/slurm/*",
    "rm -f runs/*/slurm/*.out",
    "find runs -type f | xargs rm",
    "find runs/base -name '*.out' -exec truncate -s0 {} \\;",
    "python3 - <<'E'\nimport json\njson.dump({}, open('runs/base/slurm/attempt1.json', 'w'))\nE",
]
DELETIONS = [
    "rm -rf runs",
    "rm -r runs/base",
    "rm -rf runs/base/",
    "rm -rf ../net/runs",
    "rm -rf .",
    "mv runs/base /tmp",
    "rm -rf runs/*",
    "rm -rf runs/b*",
    "rm -rf runs/{base,now}",
    "rm -rf $PWD/runs",
    "rm -rf ~/net/runs",
    "cd runs && rm -rf *",
    "find runs -delete",
    "find . -name '*.json' -delete",
    "find runs -type d -name slurm -exec rm -rf {} +",
    "git clean -fdx",
    "git mv runs/base runs/new",
    "rsync -a --delete empty/ runs/",
    "python -c \"import shutil; shutil.rmtree('runs/base')\"",
]
FINE = [
    "ls",
    "gpuq submit base",
    "gpuq queue --json | head",
    "squeue",
    "scancel 12",
    "scancel 12_3 13",
    "sbatch --help",
    "sbatch --version",
    "sbatch --test-only x.sh",
    "which sbatch",
    "command -v sbatch",
    "man sbatch",
    "grep -rn sbatch .",
    "echo sbatch x.sh",
    "git commit -m 'sbatch x.sh by hand is refused'",
    "cat launch.sh",
    "bash build.sh",
    "make train",
    "python -c 'print(1)'",
    "python train.py --help",
    "CUDA_VISIBLE_DEVICES= python train.py",
    "CUDA_VISIBLE_DEVICES=-1 python train.py",
    "env CUDA_VISIBLE_DEVICES='' python train.py",
    "GPUQ_CHECK=1 bash runs/base/job.sh",
    "pytest tests/test_train.py",
    "python tests/test_train.py",
    "python plot.py",
    "vim notes.md",
    "echo x > runs/base/job.sh",
    "sed -n 1,5p runs/dino/lr3e-4/job.sh",
    "cat runs/dino/lr3e-4/job.sh > /tmp/copy",
    "cp runs/dino/lr3e-4/job.sh runs/base/job.sh",
    "echo x > runs/now/note.txt",
    "rm /tmp/x",
    "rm runs/base/old.ckpt",
    "nvidia-smi",
    "cat train.py",
    "python -m pytest -k train",
    "ruff check train.py",
    "sinfo 2>/dev/null",
    "srun --help",
    "git commit -F - <<'E'\nRefuse sbatch x.sh\n\npython train.py\nrm -rf runs\nE",
    "git commit -m \"$(cat <<'E'\nguard: refuse `sbatch x.sh` and $(scancel -u ada)\nE\n)\"",
    "cat <<'E' > docs/notes.md\nsbatch x.sh\npython train.py\nE",
    "cat > launch2.sh <<'E'\nsbatch x.sh\nE",
    "sed -i 's/sbatch/gpuq submit/g' docs/x.md",
    "python plot_training.py",
    "python scripts/prepare_train_data.py",
    "python train_test_split.py",
    "python -m tests.test_train",
    "python constrain.py",
    "python train.py --device cpu",
    "python train.py --cpu",
    "JAX_PLATFORMS=cpu python train.py",
    "export CUDA_VISIBLE_DEVICES=; python train.py",
    "CUDA_VISIBLE_DEVICES= bash -c 'python train.py'",
    "export GPUQ_CHECK=1; bash runs/base/job.sh",
    "bash -n launch.sh",
    "bash -n runs/base/job.sh",
    "source .venv/bin/activate && pytest",
    "perl -Ilib -ne 1 runs/dino/lr3e-4/job.sh",
    "chmod +x runs/dino/lr3e-4/job.sh",
    "cp x.py runs/now",
    "cp -r runs/base runs/new",
    "rsync -a runs/ backup/",
    "find . -name '*.pyc' -delete",
    "find . -name __pycache__ -exec rm -rf {} +",
    "find runs -name '*.ckpt' -delete",
    "rm -rf build/*",
    "rm *.pyc",
    "rm -rf runs/base/*.ckpt",
    "git clean -n -fdx",
    "git clean -fdx -e runs/",
    "git clean -fd build",
    "git rm --cached runs/base/job.sh",
    "git checkout main",
    "git stash",
    "python -c 'import train; print(train.__file__)'",
    "python - <<'E'\nopen('docs/x.md', 'w').write('sbatch x.sh')\nE",
    "python -c \"import subprocess; subprocess.run(['git', 'commit', '-m', 'sbatch x.sh'])\"",
    "(cd runs/dino/lr3e-4 && ls); echo x > job.sh",
    "docker build -t train .",
    "docker run --rm python:3.11 python -V",
    "jupyter nbconvert --to html train.ipynb",
    "accelerate test",
    "coverage run -m pytest",
    "uv run -m pytest",
    "trap 'rm -f tmp' EXIT",
    "at -l",
    "ssh host squeue",
    "ssh host 'rm -rf runs'",
    "srun --mpi=list",
    "scancel --help",
    "JOB=12; scancel $JOB",
    "while squeue -h | grep -q .; do sleep 5; done",
    "for t in base now; do gpuq submit $t; done",
    "watch -n1 'tail -n5 runs/now/slurm/attempt1.out'",
    "tmux new -d -s x",
    'git commit -m "feat: x\n\nsbatch by hand is refused\npython train.py\n" && git push',
    "cat <<-'EOF' > docs/x\n\tsbatch x\n\tEOF\n",
    "CUDA_VISIBLE_DEVICES= python -c 'import torch'",
    "case $x in a|b) ls;;& *) ls;; esac",
    "cat <<< 'sbatch x.sh'",
    "rg 'python train.py' -l | xargs sed -i 's/python train.py/gpuq submit/'",
    "git restore --staged runs/dino/lr3e-4/job.sh",
    "git stash push src",
    "black --check runs/dino/lr3e-4/model.py",
    "ruff check runs/dino/lr3e-4",
    "ruff format --diff runs/dino/lr3e-4/model.py",
    "CUDA_VISIBLE_DEVICES= bash runs/base/job.sh",
    "make -C ml test",
    "make -C ml -n submit",
    "make -C ml clean",
    "find src -name '*.py' | xargs sed -i s/a/b/",
    "find runs -name job.sh | xargs grep LR",
    "find runs -name job.sh -exec grep -H LR {} \\;",
    "find runs -name '*.ckpt' | xargs rm",
    "grep -rl LR docs | xargs sed -i s/a/b/",
    "find . -name '*.py' -exec python -m py_compile {} \\;",
    "ls | xargs -n1 echo sbatch",
    "perl -e 'print \"sbatch x.sh\\n\"'",
    "awk '/system/ {print \"sbatch\"}' x",
    "node -e 'console.log(\"sbatch x.sh\")'",
    "ssh host 'curl localhost; rm -rf runs'",
    "ssh -L 80:localhost:80 host 'rm -rf net/runs'",
    "ssh localhost 'rm -rf runs'",
    "python -W ignore::DeprecationWarning:m plot.py",
    'eval "$(gpuq local env)"',
    'eval "$(gpuq local env)" && squeue',
]
UNJUDGED = [
    "$CMD x.sh",
    "curl -s http://x | bash",
    "bash $SCRIPT",
    "eval \"$X\"",
    "eval \"$(cat x) $(gpuq local env)\"",
    "bash missing.sh",
    "srun hostname",
    "python $SCRIPT",
    "python -c 'import torch; torch.ones(1).cuda()'",
    "scancel $ID",
    "echo x > runs/away/job.sh",
    "if [ x; then",
    "scancel --name=base",
    "scancel $(cat id.txt)",
    "ssh host 'python train.py'",
    "python main.py train",
    "python train.py --dry-run",
    "rm -rf runs/$TAG",
    "grep -rl LR runs | xargs sed -i s/1/2/",
    "ls runs | xargs -I{} rm -rf runs/{}",
    "find runs -newer x | xargs rm",
    "find . -name '*.py' | xargs -n1 python",
    "srun --jobid=12 --overlap nvidia-smi",
    "cat > docs/a.md <<'E'; ls\nsbatch x.sh\nE",
    "cat <<'A' > docs/a; cat <<'B' > docs/b\nsbatch a\nA\nscancel -u b\nB\n",
    "cat <<E &\nsbatch x.sh\nE",
]  # fmt: skip


def rows(rule: str, commands: list[str]) -> list[tuple[str, str]]:
    """One table row for each command."""
    return [(rule, command) for command in commands]


@pytest.mark.parametrize(
    ("rule", "command"),
    rows("submit-by-hand", BY_HAND)
    + rows("gpu-outside-job", BARE)
    + rows("run-by-hand", RUN_BY_HAND)
    + rows("cancel-all", CANCEL_ALL)
    + rows("edit-of-waiting-run", EDITS)
    + rows("record", RECORDS)
    + rows("delete-runs", DELETIONS),
)
def test_refused(rule: str, command: str) -> None:
    verdict = judge(command)
    assert verdict.rule == rule, verdict
    assert verdict.text
    assert verdict.instead


@pytest.mark.parametrize("command", FINE)
def test_passes_without_a_doubt(command: str) -> None:
    assert judge(command) == Verdict()


@pytest.mark.parametrize("command", UNJUDGED)
def test_what_cannot_be_judged_is_a_doubt(command: str) -> None:
    verdict = judge(command)
    assert not verdict.refused
    assert verdict.doubt


def test_names_the_run_to_submit() -> None:
    assert judge("sbatch --gres=gpu:1 runs/dino/lr3e-4/job.sh").instead == "gpuq submit dino/lr3e-4"
    assert judge("cd runs/base && sbatch -G 1 job.sh").instead == "gpuq submit base"


def test_inside_a_job_the_gpu_is_its_own() -> None:
    assert judge("python train.py", in_job=True) == Verdict()
    assert judge("sbatch x.sh", in_job=True).refused


def test_scripts_that_call_each_other_end() -> None:
    files = {f"{PROJECT}/a.sh": "bash b.sh", f"{PROJECT}/b.sh": "bash a.sh"}
    assert judge("bash a.sh", read=files.get).doubt


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("runs/dino/lr3e-4/job.sh", "edit-of-waiting-run"),
        (f"{RUNS}/dino/lr3e-4/data/x.json", "edit-of-waiting-run"),
        ("runs/now/run.toml", "edit-of-waiting-run"),
        ("runs/now/note.md", ""),
        ("runs/base/job.sh", ""),
        ("src/fit.py", ""),
        ("runs/base/slurm/attempt1.json", "record"),
        ("runs/.gpuq/open/ab", "record"),
    ],
)
def test_edits(path: str, rule: str) -> None:
    assert judge_edit(path, scene()).rule == rule


def test_files_of_a_patch() -> None:
    patch = "*** Begin Patch\n*** Update File: a/b c.py\n@@\n-x\n*** Add File: n.sh\n+y\n"
    patch += "*** Move to: m.sh\n*** Delete File: d\n"
    assert patched_files(patch) == ["a/b c.py", "n.sh", "m.sh", "d"]


def test_what_a_script_that_was_just_written_does_is_known() -> None:
    assert judge("printf 'ls\\n' > go.sh; bash go.sh") == Verdict()


@pytest.mark.parametrize(
    "text",
    [
        "echo " + "$(echo " * 18 + "x" + ")" * 18,
        'echo "' + '$(echo "' * 100 + "x" + '")' * 100 + '"',
        "find . " + "-exec find " * 5000 + ";",
        "alias a='a;a;a;a;a;a;a;a'; a",
        "for a in 1 2 3 4 5 6 7 8; do " * 12 + "ls;" + "done;" * 12,
        "(" * 3000 + "ls" + ")" * 3000,
        "((((({{{[[[ ' \" ` $(( " * 500,
        "\0\udcff\ud800" * 1000,
        "python -c '" + "(" * 2000 + "'",
        "cat " + "| cat " * 5000,
    ],
)
def test_deep_and_foul_text_has_an_answer(text: str) -> None:
    assert not judge(text).refused


def test_after_an_answer_about_something_deep_the_next_is_right() -> None:
    assert judge("true; " * 100 + "sbatch x.sh").refused

"""What an agent may not do by hand, and what it should type instead. Pure: a tool call and a scene in, a verdict out.

The rules are those of AGENTS.md. A command is refused when it is known to break one; what cannot be judged passes, unless
the guard is strict.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpuq.core.guard import makefile
from gpuq.core.guard.code import given_to_a_shell
from gpuq.core.guard.files import changes, diffed_files, judge_edit, judge_write, patched_files, writes
from gpuq.core.guard.python import deeds
from gpuq.core.guard.scene import Scene, Verdict, absolute
from gpuq.core.guard.shell import ANY_DEPTH, UNKNOWN, Parse, Parsed, Simple
from gpuq.core.guard.training import is_training, is_training_module, on_the_cpu
from gpuq.core.guard.unwrap import Program, programs

SUBMITTERS = frozenset({"sbatch", "srun", "salloc"})
_LAUNCHERS = frozenset({"torchrun", "deepspeed", "horovodrun", "mpirun", "mpiexec", "accelerate-launch", "composer"})
_LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed"}
)
_RUNNER_MODULES = frozenset("cProfile profile pdb ipdb trace coverage debugpy scalene viztracer kernprof fire".split())
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_GPU_OPTION = re.compile(r"(--gpus|--device[= ]/dev/nvidia|--device[= ]nvidia|--runtime[= ]nvidia)")
_NOTEBOOKS = frozenset({"papermill", "jupyter", "jupyter-nbconvert", "jupyter-execute"})
_PYTHON = re.compile(r"(i?python|pypy)[\d.]*$")
_START_UP = re.compile(r"(^|/)(activate|\.?(bash|zsh)rc|\.?(bash_|z)?profile|conda\.sh|mamba\.sh|nvm\.sh)$")
"""What sets a shell up: it starts no work, and has much in it that is known only when it runs."""
_LETTERS = "-[bBdEhiIOPqsSuvV]*"
"""Python's options without a value, one or more (python(1)); -c and -m may stand behind them in one word."""
_ASKS_HELP = frozenset({"--help", "-h", "--version", "-V", "--usage"})
_MAKE_IT_A_RUN = "make it a run and submit it: gpuq new TAG --from PROVEN KEY=VALUE, then gpuq submit TAG"
_SHORT = 4096
"""Characters of a Python program that is looked into; more is a program of the project's, not an agent's few lines."""
_DEPTH = 8
_TEXTS, _CHARACTERS = 64, 1 << 18
"""How many texts, and how much of them together, are looked at for one command: the agent waits for the answer."""


def judge_command(text: str, parse: Parse, scene: Scene) -> Verdict:
    """A shell command line. The first broken rule wins; else the first doubt."""
    texts = characters = 0

    def bounded(part: str, variables: Mapping[str, str]) -> Parsed:
        nonlocal texts, characters
        texts, characters = texts + 1, characters + len(part)
        if texts > 1 and (texts > _TEXTS or characters > _CHARACTERS):
            return Parsed((), False)
        return parse(part, variables)

    doubt = ""
    for verdict in _judge_text(text, bounded, scene, {}, 0):
        if verdict.refused:
            return verdict
        doubt = doubt or verdict.doubt
    return Verdict(doubt=doubt)


def _judge_text(text: str, parse: Parse, scene: Scene, environment: Mapping[str, str], depth: int) -> Iterator[Verdict]:
    if depth > _DEPTH:
        yield Verdict(doubt="commands within commands, too deep to follow")
        return
    known = {"HOME": scene.home} if scene.home else {}
    parsed = parse(text, {**known, **environment, "PWD": scene.cwd})
    aliases: dict[str, str] = {}
    made: dict[str, str] = {}
    read = scene.read
    scene = msgspec.structs.replace(scene, read=lambda path: made.get(path) or read(path))
    for command in parsed.commands:
        here = msgspec.structs.replace(scene, cwd=command.cwd or scene.cwd)
        for name, value in _aliases(command):
            aliases[name] = value
        yield from writes(command, here)
        _note_files(command, here, made)
        if command.words and command.words[0] in aliases:
            rest = " ".join(word.replace(UNKNOWN, "?") for word in command.words[1:])
            yield from _judge_text(f"{aliases[command.words[0]]} {rest}", parse, here, environment, depth + 1)
            continue
        for program in programs(command):
            merged = {**environment, **program.environment}
            there = msgspec.structs.replace(
                here,
                cwd=posixpath.join(scene.cwd, scene.home if "ssh-here" in program.wrappers else program.cwd),
                remote=scene.remote or "ssh" in program.wrappers,
                step=scene.step or "srun" in program.wrappers,
            )
            if program.text is not None:
                if program.text == UNKNOWN:
                    yield Verdict(doubt="what a shell is given is known only when it runs")
                else:
                    yield from _judge_text(program.text, parse, there, merged, depth + 1)
            else:
                yield from _judge_program(program, merged, parse, there, depth)
    if not parsed.whole:
        yield Verdict(doubt="not all of it is shell syntax that can be read")


def _note_files(command: Simple, scene: Scene, made: dict[str, str]) -> None:
    """`cat > go.sh <<E`: what a script will hold that is run later on the line."""
    if command.said is None:
        return
    targets = [*command.writes, *(command.words[1:] if command.words[:1] == ("tee",) else ())]
    for word in targets:
        if UNKNOWN not in word:
            made[absolute(word, scene)] = command.said


def _aliases(command: Simple) -> Iterator[tuple[str, str]]:
    if command.words[:1] == ("alias",):
        for word in command.words[1:]:
            name, equals, value = word.partition("=")
            if equals:
                yield name, value


def _judge_program(
    program: Program, environment: Mapping[str, str], parse: Parse, scene: Scene, depth: int
) -> Iterator[Verdict]:
    name, arguments = program.words[0], program.words[1:]
    if name == UNKNOWN:
        yield Verdict(doubt="the name of the program is known only when it runs")
    elif name in SUBMITTERS:
        yield _submission(name, arguments, scene)
    elif name == "scancel":
        yield _cancellation(arguments, program)
    elif name in {"sh-script", "source", "."}:
        yield from _script(arguments, environment, parse, scene, depth)
    elif name == "sh-unknown":
        yield Verdict(doubt="what the shell reads is known only when it runs")
    elif name in _CONTAINERS and "run" in arguments and _GPU_OPTION.search(" ".join(arguments)):
        yield _bare(scene, environment, f"{name} run with the GPU")
    elif name in {"apptainer", "singularity"} and "--nv" in arguments and "run" in arguments:
        yield _bare(scene, environment, f"{name} run --nv")
    elif name == "accelerate" and "launch" in arguments:
        yield _bare(scene, environment, "accelerate launch", arguments)
    elif name in _LAUNCHERS and arguments:
        yield _bare(scene, environment, name, arguments)
    elif name == "lightning" and {"run", "fit"} & set(arguments[:1]):
        yield _bare(scene, environment, f"lightning {arguments[0]}", arguments)
    elif name in _NOTEBOOKS and (name == "papermill" or {"execute", "--execute", "run"} & set(arguments)):
        for word in arguments:
            if word.endswith(".ipynb") and is_training(word, scene):
                yield _bare(scene, environment, f"{name} {word}", arguments)
    elif _PYTHON.match(name):
        yield from _python(name, arguments, program, environment, parse, scene, depth)
    elif name in {"make", "gmake"}:
        yield from _make(arguments, environment, parse, scene, depth)
    else:
        for text in given_to_a_shell(name, arguments):
            yield from _judge_text(text, parse, scene, environment, depth + 1)
        if program.path and "/" in program.path and program.path.endswith((".sh", ".bash")):
            yield from _script((program.path, *arguments), environment, parse, scene, depth)
        elif program.path and is_training(program.path, scene):
            yield _bare(scene, environment, program.path, arguments)
        if name == "apply_patch":
            for path in patched_files("\n".join((*arguments, program.stdin or ""))):
                yield judge_edit(path, scene)
        if program.stdin is not None and (name == "patch" or (name == "git" and "apply" in arguments)):
            for path in diffed_files(program.stdin):
                yield judge_edit(path, scene)
        yield from changes(name, arguments, scene)


def _make(
    arguments: Sequence[str], environment: Mapping[str, str], parse: Parse, scene: Scene, depth: int
) -> Iterator[Verdict]:
    """What is refused in the recipes of the targets; whatever else stands in a Makefile passes."""
    asked = makefile.arguments_of(arguments)
    if asked is None or any(UNKNOWN in word for word in arguments):
        return
    directory, file, variables, goals = asked
    scene = msgspec.structs.replace(scene, cwd=posixpath.join(scene.cwd, directory))
    texts = (scene.read(absolute(name, scene)) for name in ([file] if file else makefile.FILES))
    text = next((one for one in texts if one is not None), "")
    for line in makefile.recipes(text, goals, variables):
        for verdict in _judge_text(line, parse, scene, environment, depth + 1):
            if verdict.refused:
                yield verdict


def _submission(name: str, arguments: Sequence[str], scene: Scene) -> Verdict:
    if any(word in _ASKS_HELP or word in {"--test-only", "--mpi=list"} for word in arguments):
        return Verdict()
    if name == "srun" and (scene.in_job or scene.step):
        return Verdict()  # a step of a job that is there already
    asks = any(re.match(r"(-G|--gpus|--gres(=|$).*|--tres-per-\w+=.*gpu)", word) for word in arguments) and not any(
        word in {"--gres=none", "--gpus=0"} for word in arguments
    )
    script = next((word for word in arguments if not word.startswith("-")), "")
    tag = None if not script or UNKNOWN in script else scene.tag(absolute(script, scene))
    for word in arguments:  # an option's value may stand where a script would
        if tag is None and word.endswith(".sh") and UNKNOWN not in word:
            tag = scene.tag(absolute(word, scene))
    instead = f"gpuq submit {tag}" if tag else "gpuq submit TAG (a run is runs/TAG/job.sh; gpuq submit --help)"
    if name == "sbatch" or asks:
        what = "with a GPU " if asks else ""
        return Verdict(
            rule="submit-by-hand",
            text=f"{name} {what}by hand: no attempt number, no log of its own, no outcome, and nobody checks the GPU",
            instead=instead,
        )
    if name == "salloc":
        return Verdict(
            rule="submit-by-hand", text="salloc holds the queue for as long as a shell is open", instead=instead
        )
    return Verdict(doubt="srun without a GPU: what it runs is not known to train")


def _cancellation(arguments: Sequence[str], program: Program) -> Verdict:
    if any(word in _ASKS_HELP for word in arguments):
        return Verdict()
    filters = (
        r"-[bcfHiQvV]*[uApqtRw]|--(user|me|account|partition|qos|state|reservation|nodelist|wckey|name)\b|-[bcfHiQvV]*n"
    )
    broad = [word for word in arguments if re.match(filters, word)]
    ids = [word for word in arguments if re.match(r"\d", word)]
    named = broad and all(re.match(r"-[bcfHiQvV]*n|--name", word) for word in broad)
    listed = {"squeue", "sacct"} & {*program.inner, *program.upstream}
    if listed or {"xargs", "parallel"} & set(program.wrappers) or (broad and not ids and not named):
        return Verdict(
            rule="cancel-all",
            text="this cancels jobs that others, or another of your conversations, submitted",
            instead="gpuq cancel TAG (one run) or gpuq cancel JOBID; gpuq queue shows them",
        )
    if named and not ids:
        return Verdict(doubt="every job of that name is cancelled, whoever submitted it")
    if any(UNKNOWN in word for word in arguments):
        return Verdict(doubt="which jobs are cancelled is known only when it runs")
    return Verdict()


def _script(
    arguments: Sequence[str], environment: Mapping[str, str], parse: Parse, scene: Scene, depth: int
) -> Iterator[Verdict]:
    if not arguments:
        return
    if _START_UP.search(arguments[0]):
        return
    if UNKNOWN in arguments[0]:
        yield Verdict(doubt="which script is run is known only when it runs")
        return
    path = absolute(arguments[0], scene)
    if "*" in path or ANY_DEPTH in path:
        path = next(iter(scene.glob(path.replace("**", "*").replace(ANY_DEPTH, "**"))), path)
    tag = scene.tag(path)
    if tag is not None and posixpath.basename(path) == "job.sh" and not on_the_cpu((), environment):
        if not scene.in_job and environment.get("GPUQ_CHECK", "") in {"", "0"}:
            yield Verdict(
                rule="run-by-hand",
                text=f"this runs {tag} outside Slurm: it takes the GPU from the job that has it, and nothing is recorded",
                instead=f"gpuq submit {tag} (to check its arguments only: GPUQ_CHECK=1 bash {arguments[0]})",
            )
        return
    text = scene.read(path)
    if text is None:
        yield Verdict(doubt=f"{arguments[0]} could not be read")
    else:
        yield from _judge_text(text, parse, scene, environment, depth + 1)


def _python(
    name: str,
    arguments: Sequence[str],
    program: Program,
    environment: Mapping[str, str],
    parse: Parse,
    scene: Scene,
    depth: int,
) -> Iterator[Verdict]:
    n = 0
    while n < len(arguments) and arguments[n].startswith("-"):
        word = arguments[n]
        if re.fullmatch(rf"{_LETTERS}c", word):
            code = arguments[n + 1] if n + 1 < len(arguments) else ""
            yield from _code(code, environment, parse, scene, depth)
            return
        if match := re.fullmatch(rf"{_LETTERS}m(.*)", word):
            module = match[1] or (arguments[n + 1] if n + 1 < len(arguments) else "")
            rest = arguments[n + (1 if match[1] else 2) :]
            if module in _LAUNCHER_MODULES or (module == "accelerate" and rest[:1] == ("launch",)):
                yield _bare(scene, environment, f"{name} -m {module}", rest)
            elif module in _RUNNER_MODULES:
                for word in rest:
                    if is_training(word, scene):
                        yield _bare(scene, environment, f"{name} -m {module} {word}", rest)
            elif is_training_module(module, scene):
                yield _bare(scene, environment, f"{name} -m {module}", rest)
            return
        n += 2 if word in {"-W", "-X", "-Q"} else 1
    if arguments[n:] in {(), ("-",)}:
        if program.stdin is not None:
            yield from _code(program.stdin, environment, parse, scene, depth)
            return
        arguments, n = (program.source or UNKNOWN,), 0
        if arguments == (UNKNOWN,):
            return
    script = arguments[n]
    if UNKNOWN in script or ANY_DEPTH in script:
        yield Verdict(doubt="which Python program is run is known only when it runs")
    elif is_training(script, scene):
        yield _bare(scene, environment, f"{name} {script}", arguments[n + 1 :])
    elif arguments[n + 1 : n + 2] in {("train",), ("fit",), ("finetune",)}:
        yield Verdict(doubt=f"{script} {arguments[n + 1]} may train")
    elif (text := scene.read(absolute(script, scene))) is not None and len(text) < _SHORT:
        yield from _code(text, environment, parse, scene, depth, doubts=False)


def _code(
    code: str, environment: Mapping[str, str], parse: Parse, scene: Scene, depth: int, *, doubts: bool = True
) -> Iterator[Verdict]:
    """Python code: what it gives to a shell, the files that it writes, the programs that it runs."""
    done = deeds(code)
    for text in done.texts:
        yield from _judge_text(text, parse, scene, environment, depth + 1)
    for path, how in done.writes:
        yield judge_write(path, scene, how)
    for path in done.programs:
        if is_training(path, scene):
            yield _bare(scene, environment, path)
    if doubts and not on_the_cpu((), environment) and re.search(r"\b(torch|cuda|tensorflow|jax|cupy)\b", code):
        yield Verdict(doubt="Python code that may use the GPU")


def _bare(scene: Scene, environment: Mapping[str, str], what: str, arguments: Sequence[str] = ()) -> Verdict:
    if scene.in_job or any(word in _ASKS_HELP for word in arguments) or on_the_cpu(arguments, environment):
        return Verdict()
    if {"--dry-run", "--dry_run", "--dryrun"} & set(arguments):
        return Verdict(doubt=f"{what}, which is told to do nothing")
    if scene.remote:
        return Verdict(doubt=f"{what} on another machine")
    if environment.get("GPUQ_CHECK", "") not in {"", "0"}:
        return Verdict()
    if scene.step:
        return Verdict(
            rule="submit-by-hand",
            text=f"{what} through srun by hand: nothing of it is recorded",
            instead=_MAKE_IT_A_RUN,
        )
    return Verdict(
        rule="gpu-outside-job",
        text=f"{what} outside a job: it takes the GPU from the job that has it, ends with this conversation, "
        "and leaves no log and no outcome",
        instead=f"{_MAKE_IT_A_RUN} (without the GPU: CUDA_VISIBLE_DEVICES= in front of it)",
    )

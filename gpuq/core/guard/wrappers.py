"""Programs that run another one, with those of their options that take a value (from their man pages)."""

from __future__ import annotations

import msgspec


class Wrapper(msgspec.Struct, frozen=True):
    """How a program takes the command that it runs: options with a value, arguments before the command."""

    valued: frozenset[str] = frozenset()
    before: int = 0
    variables: bool = False
    """NAME=VALUE may stand before the command."""
    verbs: tuple[str, ...] = ()
    """Words that make it run a command: `conda run`, `uv run`, `docker exec`."""
    text: frozenset[str] = frozenset()
    """Options whose value is a shell's text: `script -c`, `su -c`."""
    joined: bool = False
    """The command's words are put together and given to a shell: `watch`, `ssh`."""
    moves: frozenset[str] = frozenset()
    """Options whose value is the directory that it runs in: `env -C`."""
    modules: bool = False
    """Has -m like Python: `uv run -m`, `coverage run -m`."""
    words: bool = False
    """A long option that is not in `flags` takes the next word: `srun --ntasks 1`."""
    flags: frozenset[str] = frozenset()


def _wrapper(valued: str = "", *, before: int = 0, variables: bool = False, verbs: str = "", text: str = "",
             joined: bool = False, moves: str = "", modules: bool = False, flags: str = "") -> Wrapper:  # fmt: skip
    return Wrapper(
        valued=frozenset(f"{valued} {moves}".split()),
        before=before,
        variables=variables,
        verbs=tuple(verbs.split()),
        text=frozenset(text.split()),
        joined=joined,
        moves=frozenset(moves.split()),
        modules=modules,
        words=bool(flags),
        flags=frozenset(flags.split()),
    )


_CONDA = _wrapper("-n --name -p --prefix --cwd", verbs="run")
WRAPPERS: dict[str, Wrapper] = {
    "env": _wrapper("-u --unset", moves="-C --chdir", variables=True, text="-S --split-string"),
    "sudo": _wrapper(
        "-u -g -h -p -C -r -t -T -U -R --user --group --host --prompt --chroot", moves="-D --chdir", variables=True
    ),
    "doas": _wrapper("-u -C"),
    "su": _wrapper("-s -g -G --shell", text="-c --command", before=2),
    "runuser": _wrapper("-u -g -G -s", text="-c --command"),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n -p --class --classdata"),
    "chrt": _wrapper(before=1),
    "taskset": _wrapper(before=1),
    "numactl": _wrapper("-C -m -N -i -l -p"),
    "timeout": _wrapper("-k -s --kill-after --signal", before=1),
    "chronic": _wrapper(),
    "prlimit": _wrapper("-p --pid -o --output"),
    "cpulimit": _wrapper("-l -p -e -P --limit --pid --exe --path"),
    "setpriv": _wrapper("--ruid --euid --rgid --egid --reuid --regid --groups --securebits --pdeathsig"),
    "setarch": _wrapper(),
    "linux64": _wrapper(),
    "dbus-run-session": _wrapper("--config-file --dbus-daemon"),
    "pkexec": _wrapper("--user"),
    "sg": _wrapper(text="-c", before=1),
    "fakeroot": _wrapper("-l -s -i -b --lib --faked"),
    "daemonize": _wrapper("-c -e -o -p -l -u -E"),
    "entr": _wrapper(),
    "watchexec": _wrapper("-w -e -f -i -s -d -W --watch --exts --filter --ignore --signal --debounce"),
    "time": _wrapper("-f -o --format --output"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "strace": _wrapper("-e -o -p -s -u -E -P -I"),
    "ltrace": _wrapper("-e -o -p -s -u"),
    "gdb": _wrapper("-x -ex"),
    "cuda-gdb": _wrapper("-x -ex"),
    "compute-sanitizer": _wrapper("--tool"),
    "xvfb-run": _wrapper("-e -f -n -p -s -w --server-args --server-num"),
    "ssh": _wrapper("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", before=1, joined=True),
    "srun": _wrapper(
        "-A -b -c -C -d -D -e -G -i -J -m -M -n -N -o -p -q -r -S -t -T -w -W -x",
        flags="--contiguous --disable-status --exact --exclusive --hold --kill-on-bad-exit --label --multi-prog "
        "--no-allocate --no-kill --overcommit --overlap --oversubscribe --preserve-env --pty --quiet --reboot "
        "--spread-job --unbuffered --use-min-nodes --verbose",
    ),
    "py-spy": _wrapper("-o -f -r -d --output --format --rate --duration", verbs="record top"),
    "coverage": _wrapper("--rcfile --source --include --omit --data-file", verbs="run", modules=True),
    "kernprof": _wrapper("-o --outfile -s --setup"),
    "scalene": _wrapper("--outfile"),
    "viztracer": _wrapper("-o --output_file"),
    "mise": _wrapper(verbs="exec x"),
    "asdf": _wrapper(verbs="exec"),
    "pyenv": _wrapper(verbs="exec"),
    "dotenv": _wrapper("-f --file", verbs="run"),
    "valgrind": _wrapper(),
    "perf": _wrapper("-e -o -F", verbs="record stat trace"),
    "nsys": _wrapper(
        "-o -t -s -f -c --output --trace --sample --force-overwrite --stats --gpu-metrics-device", verbs="profile"
    ),
    "ncu": _wrapper("-o"),
    "flock": _wrapper("-w -E --timeout --conflict-exit-code", before=1, text="-c --command"),
    "xargs": _wrapper("-n -P -I -L -a -d -s -E --max-args --max-procs --replace --arg-file --delimiter"),
    "parallel": _wrapper("-j --jobs -N -a --arg-file --colsep", joined=True),
    "watch": _wrapper("-n -d --interval", joined=True),
    "unbuffer": _wrapper(),
    "script": _wrapper("-t -o", text="-c --command"),
    "exec": _wrapper("-a"),
    "builtin": _wrapper(),
    "coproc": _wrapper(),
    "command": _wrapper(),
    "busybox": _wrapper(),
    "systemd-run": _wrapper("-p -u -E -M -H -t --unit --property --setenv --slice --uid --gid --working-directory"),
    "systemd-inhibit": _wrapper(),
    "cgexec": _wrapper("-g"),
    "unshare": _wrapper(),
    "nsenter": _wrapper("-t"),
    "chroot": _wrapper(before=1),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "uv": _wrapper(
        "--from --with --with-editable --with-requirements -p --python --project --env-file --extra --group --package "
        "--index --cache-dir --config-file",
        moves="--directory",
        verbs="run",
        modules=True,
    ),
    "uvx": _wrapper("--from --with -p --python"),
    "pipx": _wrapper("--spec --python --pip-args", verbs="run"),
    "poetry": _wrapper("-C --directory -P --project", verbs="run"),
    "pdm": _wrapper("-p --project", verbs="run"),
    "pipenv": _wrapper(verbs="run"),
    "hatch": _wrapper("-e --env", verbs="run"),
    "pixi": _wrapper("-e --environment --manifest-path", verbs="run"),
    "rye": _wrapper(verbs="run"),
    "direnv": _wrapper(before=1, verbs="exec"),
    "nix-shell": _wrapper("-p -I -A --attr", text="--run --command"),
    "nix": _wrapper("-f --file -I", verbs="-c --command"),
    "apptainer": _wrapper("-B --bind -H --home -W --pwd --env --env-file", before=1, verbs="exec"),
    "singularity": _wrapper("-B --bind -H --home -W --pwd --env --env-file", before=1, verbs="exec"),
    "docker": _wrapper("-u -w -e --user --workdir --env", before=1, verbs="exec"),
    "podman": _wrapper("-u -w -e --user --workdir --env", before=1, verbs="exec"),
    "gpuq": _wrapper(verbs="run"),
}

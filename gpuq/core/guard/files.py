"""The guard's rules about files: a run that waits is not edited, records are not changed, runs are not deleted."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import msgspec

from gpuq.core.guard.scene import Scene, Use, Verdict, absolute
from gpuq.core.guard.shell import ANY_DEPTH, UNKNOWN, Simple


def judge_edit(path: str, scene: Scene) -> Verdict:
    """A file that an editing tool is going to write (or delete)."""
    return _written(path, scene, "edited")


def judge_write(path: str, scene: Scene, how: str) -> Verdict:
    """A file that a program writes, or removes (how: what becomes of it; `removed`)."""
    return next(_all_written([path], scene, how, removal=how == "removed"), Verdict())


_MOST_WORDS = 256
_SEDS = re.compile(r"-[nErsuz]*i|--in-place")
_PERLS = re.compile(r"-[pnlaw0-9]*i")
_EDITORS = frozenset("tee touch patch ed ex vim vi nvim nano emacs sponge dos2unix gzip gunzip xz bzip2".split())
_FORMATTERS = frozenset({"black", "isort", "ruff"})
_LOOKS = frozenset({"--check", "--check-only", "-c", "--diff"})
_REWRITES = {
    "shfmt": frozenset({"-w", "--write"}),
    "yq": frozenset({"-i", "--inplace"}),
    "prettier": frozenset({"-w", "--write"}),
    "autopep8": frozenset({"-i", "--in-place"}),
    "clang-format": frozenset({"-i"}),
}
"""Programs that change the files they are given, with one of these options."""
_OUTPUT = {
    "curl": ("-o", "--output"),
    "wget": ("-O", "--output-document"),
    "sort": ("-o", "--output"),
}
"""Options whose value is a file to write."""
_PATCH = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)


def patched_files(patch: str) -> list[str]:
    """The files that a patch in the format of Codex's apply_patch touches."""
    return _PATCH.findall(patch)


def diffed_files(diff: str) -> list[str]:
    """The files that a unified diff changes (diff(1), `+++ b/FILE`), its first directory left out as with `patch -p1`."""
    return re.findall(r"^\+\+\+ (?:b/)?([^\t\n]+)", diff, re.MULTILINE)


def changes(name: str, arguments: Sequence[str], scene: Scene) -> Iterator[Verdict]:
    """Programs that change files by their arguments."""
    plain = [word for word in arguments if not word.startswith("-") or word == "-"]
    flags = [word for word in arguments if word.startswith("-")]
    if name in {"rm", "rmdir", "unlink", "shred", "truncate", "trash", "trash-put"}:
        yield from _all_written(plain, scene, "removed", removal=name != "truncate")
    elif name in {"mv", "rename", "cp", "install", "ln", "rsync"}:
        yield from _moved(name, arguments, plain, flags, scene)
    elif name in _EDITORS:
        yield from _all_written(plain, scene, "changed")
    elif _in_place(name, arguments, flags):
        yield from _all_written(plain, scene, "edited")
    elif name in _OUTPUT:
        files = [value for word, value in pairwise(arguments) if word in _OUTPUT[name]]
        files += [word.partition("=")[2] for word in flags if word.partition("=")[0] in _OUTPUT[name]]
        yield from _all_written(files, scene, "overwritten")
    elif name == "dd":
        yield from _all_written([word[3:] for word in arguments if word.startswith("of=")], scene, "overwritten")
    elif name == "find":
        yield _found(arguments, scene)
    elif name == "git":
        yield from _git(arguments, scene)


def _in_place(name: str, arguments: Sequence[str], flags: Sequence[str]) -> bool:
    if name in {"sed", "gsed"}:
        return any(_SEDS.match(flag) for flag in flags)
    if name in {"perl", "ruby"}:
        return any(_PERLS.match(flag) for flag in flags)
    if name in _FORMATTERS:  # without an option, unless they are told to look only
        return (name != "ruff" or "format" in arguments[:1] or "--fix" in flags) and not _LOOKS & set(flags)
    if name in _REWRITES:
        return bool(_REWRITES[name] & set(flags))
    return name in {"awk", "gawk"} and "inplace" in arguments


def _moved(
    name: str, arguments: Sequence[str], plain: Sequence[str], flags: Sequence[str], scene: Scene
) -> Iterator[Verdict]:
    into = [value for word, value in pairwise(arguments) if word in {"-t", "--target-directory"} and name != "rsync"]
    into += [flag.partition("=")[2] for flag in flags if flag.startswith("--target-directory=")]
    sources = [word for word in plain if word not in into] if into else list(plain[:-1])
    if not into and len(plain) < 2:
        return
    if name in {"mv", "rename"}:
        yield from _all_written(sources, scene, "moved away", removal=True)
    if into:
        yield from _all_written(
            [f"{into[0].rstrip('/')}/{posixpath.basename(w)}" for w in sources], scene, "overwritten"
        )
        return
    if name == "rsync" and any(flag.startswith("--del") for flag in flags):
        yield from _all_written([plain[-1]], scene, "removed", removal=True)
    yield from _all_written([_target(plain, scene)], scene, "overwritten")


def _git(arguments: Sequence[str], scene: Scene) -> Iterator[Verdict]:
    arguments = list(arguments)
    while arguments[:1] and arguments[0].startswith("-"):
        if arguments[0] == "-C" and len(arguments) > 1 and UNKNOWN not in arguments[1]:
            scene = msgspec.structs.replace(scene, cwd=posixpath.join(scene.cwd, arguments[1]))
        del arguments[: 2 if arguments[0] in {"-C", "-c", "--git-dir", "--work-tree"} else 1]
    verb, flags = arguments[:1], [word for word in arguments[1:] if word.startswith("-")]
    plain = [word for word in arguments[1:] if not word.startswith("-")]
    if verb == ["restore"] and {"--staged", "-S"} & set(flags) and not {"--worktree", "-W"} & set(flags):
        return  # the index alone
    if verb in (["checkout"], ["restore"]) or (verb == ["stash"] and plain[:1] == ["push"]):
        yield from _all_written(plain, scene, "changed")
    elif verb == ["rm"] and "--cached" not in flags and not {"-n", "--dry-run"} & set(flags):
        yield from _all_written(plain, scene, "changed", removal=True)
    elif verb == ["mv"] and len(plain) > 1:
        yield from _moved("mv", arguments[1:], plain, flags, scene)
    elif verb == ["clean"]:
        letters = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
        if "n" in letters or "--dry-run" in flags:
            return
        kept = [word.split("=")[-1] for word in arguments if word.startswith("--exclude=")]
        kept += [value for word, value in pairwise(arguments) if re.fullmatch(r"-\w*e", word)]
        root = posixpath.relpath(scene.runs, scene.project)
        if any(word.strip("/*") == root for word in kept):
            return
        for word in [one for one in plain if one not in kept] or ["."]:
            yield _written(word, scene, "changed", removal=True)


def _found(arguments: Sequence[str], scene: Scene) -> Verdict:
    """`find ROOT… -name PATTERN -delete`, and the same with -exec rm."""
    first = next((n for n, word in enumerate(arguments) if word.startswith("-") or word in {"(", "!"}), len(arguments))
    removes = "-delete" in arguments or any(
        word in {"-exec", "-execdir"} and value.rsplit("/", 1)[-1] in {"rm", "shred", "unlink"}
        for word, value in pairwise(arguments)
    )
    if not removes:
        return Verdict()
    for root in arguments[:first] or ["."]:
        if UNKNOWN in root:
            continue
        whole = absolute(root, scene)
        if not (f"{scene.runs}/".startswith(whole.rstrip("/") + "/") or whole.startswith(scene.runs + "/")):
            continue
        names = [value for word, value in pairwise(arguments) if word in {"-name", "-iname"}]
        if any(
            fnmatchcase(one, name) for name in names for one in ("job.sh", "slurm", "attempt1.json", "attempt1.out")
        ):
            return _removal(f"{root} (find)")
        if names or any(word in {"-path", "-regex", "-not", "!", "-prune"} for word in arguments):
            continue
        if "-empty" not in arguments:
            return _removal(f"{root} (find)")
    return Verdict()


def _target(plain: Sequence[str], scene: Scene) -> str:
    """Where `cp A B` writes: B itself, or A's name in it when B is written as a directory, or is a run."""
    source, target = plain[-2], plain[-1]
    whole = absolute(target, scene) if UNKNOWN not in target else ""
    if target.endswith("/") or (whole and scene.tag(whole) == posixpath.relpath(whole, scene.runs)):
        return posixpath.join(target, posixpath.basename(source.rstrip("/")) or ".")
    return target


def writes(command: Simple, scene: Scene) -> Iterator[Verdict]:
    """The files that a command's redirections write to."""
    plain = [path for path in command.writes if path not in {"/dev/null", "/dev/stderr", "/dev/stdout"}]
    yield from _all_written(plain, scene, "overwritten")


def _all_written(words: Sequence[str], scene: Scene, how: str, *, removal: bool = False) -> Iterator[Verdict]:
    if scene.remote:
        return
    for word in words[:_MOST_WORDS]:
        for path in _braces(word):
            for one in (*([] if ANY_DEPTH in path else [path]), *_matching(path, scene)):
                yield _written(one, scene, how, removal=removal)


def _matching(path: str, scene: Scene) -> Sequence[str]:
    """The files that a pattern stands for, where it can lead into the runs root; no others are looked for."""
    fixed = re.match(rf"[^*?\[{ANY_DEPTH}]*", path)
    if UNKNOWN in path or fixed is None or fixed[0] == path:
        return ()
    whole = posixpath.join(scene.cwd, path)
    start = absolute(posixpath.dirname(fixed[0]) or ".", scene)
    if f"{start}/".startswith(f"{scene.runs}/"):
        return scene.glob(_pattern(whole))[:_MOST_WORDS]
    if f"{scene.runs}/".startswith(start.rstrip("/") + "/"):
        inside = posixpath.relpath(scene.runs, start).split("/")
        parts = posixpath.relpath(posixpath.normpath(whole), start).split("/")
        if ANY_DEPTH in parts[: len(inside)]:
            return scene.glob(posixpath.join(scene.runs, "**", parts[-1]))[:_MOST_WORDS]
        if all(map(fnmatchcase, inside, parts)):
            pattern = posixpath.join(scene.runs, *parts[len(inside) :])
            return scene.glob(_pattern(pattern)) if len(parts) > len(inside) else (scene.runs,)
    return ()


def _pattern(path: str) -> str:
    """As Python's glob reads it: `**` is `*` to bash (unless told otherwise), and what find walks through is `**`."""
    return path.replace("**", "*").replace(ANY_DEPTH, "**")


def _braces(word: str) -> list[str]:
    """`a/{b,c}` is a/b and a/c (bash(1), "Brace Expansion"), one pair of braces deep, twice at most."""
    found = [word]
    for _ in range(2):
        found = [
            head + piece + tail
            for one in found
            for head, pieces, tail in [_brace(one)]
            for piece in pieces[:_MOST_WORDS]
        ]
    return found


def _brace(word: str) -> tuple[str, list[str], str]:
    match = re.match(r"([^{}]*)\{([^{}]*,[^{}]*)\}(.*)", word, re.DOTALL)
    return (match[1], match[2].split(","), match[3]) if match else (word, [""], "")


def _written(path: str, scene: Scene, how: str, *, removal: bool = False) -> Verdict:
    if not path or scene.remote:
        return Verdict()
    if UNKNOWN in path:
        known = absolute(path.partition(UNKNOWN)[0] or ".", scene)
        ours = f"{known}/".startswith(scene.runs + "/") and not path.startswith(UNKNOWN)
        return Verdict(doubt=f"which file below {scene.runs} is {how} is known only when it runs" if ours else "")
    whole = absolute(path, scene)
    if removal and f"{scene.runs}/".startswith(whole.rstrip("/") + "/"):
        return _removal(path)
    if not whole.startswith(scene.runs + "/"):
        return Verdict()
    inside = posixpath.relpath(whole, scene.runs)
    if inside == ".gpuq" or inside.startswith(".gpuq/") or re.search(r"(^|/)slurm(/attempt\d+\..*)?$", inside):
        return Verdict(
            rule="record",
            text=f"{path} is a record of what was tried; it is never changed by hand",
            instead="gpuq status TAG, gpuq log TAG read it",
        )
    tag = scene.tag(whole)
    if tag is None:
        return _removal(path) if removal and _holds_runs(whole, scene) else Verdict()
    use = scene.use(tag)
    if use is Use.IDLE:
        return _removal(path) if removal and posixpath.normpath(posixpath.join(scene.runs, tag)) == whole else Verdict()
    if use is Use.UNKNOWN:
        return Verdict(doubt=f"{tag} may wait or run; Slurm does not answer")
    own = posixpath.relpath(whole, posixpath.join(scene.runs, tag))
    if use is Use.RUNNING and own not in {".", "job.sh", "run.toml"}:
        return Verdict()
    word = "waits" if use is Use.WAITING else "runs"
    return Verdict(
        rule="edit-of-waiting-run",
        text=f"{tag} {word}, and {path} would be {how} under it: what is recorded would not be what ran",
        instead=f"gpuq new NEWTAG --from {tag} KEY=VALUE, or gpuq cancel {tag} first",
    )


def _holds_runs(path: str, scene: Scene) -> bool:
    """A directory below the runs root that is no run, and holds some."""
    return bool(scene.glob(posixpath.join(path, "**/job.sh")))


def _removal(path: str) -> Verdict:
    return Verdict(
        rule="delete-runs",
        text=f"{path}: runs and their records are the memory of this project",
        instead="ask the person whose project this is",
    )

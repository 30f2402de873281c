"""What a one-line program in another language gives to a shell: `perl -e 'system("…")'`, `awk 'BEGIN{system("…")}'`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpuq.core.guard.unwrap import quoted

_LITERAL = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_CALLS = re.compile(
    rf"\b(?:system2?|exec|popen|spawn|spawnSync|execSync|execFile|execFileSync|shell_exec|passthru)\b[\s(]*"
    rf"({_LITERAL}(?:[\s,\[]+{_LITERAL})*)"
)
_TICKS = re.compile(r"`([^`]+)`|\bqx[({{\[/]([^)}}\]/]+)")
_TAKES_CODE = {
    re.compile(r"perl[\d.]*"): re.compile(r"-[a-zA-Z0-9]*[eE]"),
    re.compile(r"ruby[\d.]*"): re.compile(r"-[a-z]*e"),
    re.compile(r"node|nodejs|bun|deno"): re.compile(r"-e|-p|--eval|--print"),
    re.compile(r"php[\d.]*"): re.compile(r"-r"),
    re.compile(r"lua[\d.]*|Rscript|R|julia"): re.compile(r"-e|--eval"),
}
_HAS_TICKS = re.compile(r"(perl|ruby|php)")
_AWK = re.compile(r"[gmn]?awk$")


def given_to_a_shell(name: str, arguments: Sequence[str]) -> Iterator[str]:
    """The texts for a shell in the code that `name` is given on its command line, as far as constants tell."""
    for code in _codes(name, arguments):
        for match in _CALLS.finditer(code):
            words = [_text(literal) for literal in re.findall(_LITERAL, match[1])]
            yield words[0] if len(words) == 1 else " ".join(map(quoted, words))
        if _HAS_TICKS.match(name):
            yield from (first or second for first, second in _TICKS.findall(code))


def _codes(name: str, arguments: Sequence[str]) -> Iterator[str]:
    if _AWK.match(name):
        yield from (word for word in arguments if "{" in word)
        return
    for program, option in _TAKES_CODE.items():
        if program.fullmatch(name):
            for word, code in pairwise(arguments):
                if option.fullmatch(word):
                    yield code


def _text(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal[1:-1])

"""What `--after X` means: X resolved to a dependency of sbatch, to nothing, or to a refusal."""

from __future__ import annotations

import re

_TERM = re.compile(r"(after[a-z]*):(\d+)(?:_(?:\d+|\*))?(?:\+\d+)?(?:\((\w+)\))?")


def parse_dependency(text: str) -> list[tuple[str, int, str]]:
    """(kind, job id, state in brackets) of each term that squeue's %E shows, like `afterok:12(unfulfilled)`.

    Text that is no such list (`(null)`, `singleton`) yields nothing.
    """
    found = []
    kind = ""
    for part in re.split(r"[,?]", text):
        match = _TERM.fullmatch(part.strip())
        if match:
            kind = match[1]
            found.append((kind, int(match[2]), match[3] or ""))
    return found


_WORDS = {
    "afterany": "after {}",
    "afterok": "after {} succeeds",
    "afternotok": "after {} fails",
    "after": "after {} starts",
    "aftercorr": "after the same task of {} succeeds",
}


def dependency_words(text: str) -> str:
    """A dependency for a person: `after 12`, `after 12 succeeds`; several joined by commas, or by `or` where one will do."""
    words = [_WORDS.get(kind, kind + " {}").format(job) for kind, job, _state in parse_dependency(text)]
    if "singleton" in re.split(r"[,?(]", text):
        words.append("after your other jobs of this name")
    return (" or " if "?" in text else ", ").join(words) or text

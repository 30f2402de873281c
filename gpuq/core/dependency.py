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


def dependency_words(text: str) -> str:
    """A dependency for a person: `after 12`, `after 12 succeeds`; several joined by commas."""
    words = []
    for kind, job, _state in parse_dependency(text):
        words.append(
            {
                "afterany": f"after {job}",
                "afterok": f"after {job} succeeds",
                "afternotok": f"after {job} fails",
                "after": f"after {job} starts",
            }.get(kind, f"{kind} {job}")
        )
    return ", ".join(words) or text

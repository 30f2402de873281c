"""Write the generated parts of README.md from the code: the table of commands and the table of exit codes.

python scripts/generate-readme.py          writes README.md
python scripts/generate-readme.py --check  exits with 1 when README.md is not what it would write
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gpuq.cli.main import COMMANDS
from gpuq.errors import EXIT_CODES

README = Path(__file__).parent.parent / "README.md"


def commands() -> str:
    """A row for each command."""
    rows = [f"| `gpuq {name}` | {line} |" for name, (_, line) in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def exit_codes() -> str:
    """A row for each exit code."""
    rows = [f"| {code} | {meaning} |" for code, meaning in sorted(EXIT_CODES.items())]
    rows.append("| 128 + N | gpuq was ended by signal N (130: Ctrl-C, 141: the reader of its output went away) |")
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


PARTS = {"commands": commands, "exit-codes": exit_codes}


def generate(text: str) -> str:
    """`text` with every generated part renewed. Raises SystemExit when a part has no place."""
    for name, make in PARTS.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"README.md has no place for {name!r}: {begin} … {end}")
        part = f"{begin}\n{make()}\n{end}"
        text = pattern.sub(lambda _, part=part: part, text)  # type: ignore[misc]
    return text


def main() -> None:
    """See the module."""
    text = README.read_text()
    wanted = generate(text)
    if "--check" in sys.argv[1:]:
        if wanted != text:
            raise SystemExit("README.md is not up to date: python scripts/generate-readme.py")
    else:
        README.write_text(wanted)


if __name__ == "__main__":
    main()

"""Templates of the user's own for titles and texts: `{name} is over: {outcome}`. Names in braces and nothing else.

str.format would let a template read attributes and indexes of what it is given, pad a field to a gigabyte, or raise in
the middle of a delivery. Here a template is checked when the configuration is read, and rendering cannot fail.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

LONGEST = 2000
"""Characters of a template."""


def check_template(template: str, known: Iterable[str]) -> None:
    """Raises ValueError, with a sentence for a person, for a template that could not be filled in with these names."""
    names = list(known)
    if len(template) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    for name in _names(template):
        if name not in names:
            import difflib

            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {{{close[0]}}}?" if close else f"known are {', '.join(names)}"
            raise ValueError(f"has the unknown field {{{name}}}; {hint}")


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with its fields filled in; a field that this event does not have is empty."""
    parts = []
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(values.get(name, ""))
    return "".join(parts)


def _names(template: str) -> list[str]:
    names = []
    try:
        for _, name, spec, conversion in string.Formatter().parse(template):
            if name is None:
                continue
            if spec or conversion or not name.isidentifier():
                raise ValueError("may hold only plain names in braces, like {name}; a brace itself is written {{ or }}")
            names.append(name)
    except ValueError as error:
        text = str(error)
        if "brace" in text:
            raise
        raise ValueError(f"is no template: {text}; a brace itself is written {{{{ or }}}}") from None
    return names

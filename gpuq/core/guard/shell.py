"""A shell command line, taken apart: what a parser found and what a rule may look at. Values only.

A word is its text after quoting is undone. A piece that is known only when the shell runs (`$X`, `$(…)`, a glob is not one)
is the character UNKNOWN in it, so that `\0/bin/sbatch` still has a last component.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

UNKNOWN = "\0"
ANY_DEPTH = "\1"
"""A component of a path that stands for none, one or more directories: what `find` looks through."""


class Simple(msgspec.Struct, frozen=True, kw_only=True):
    """A simple command (bash(1), "Simple Commands") wherever it stands: in a pipeline, a loop, a substitution."""

    words: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()
    """The variables set in front of it, for it alone."""
    writes: tuple[str, ...] = ()
    """Files that redirections write to."""
    stdin: str | None = None
    """What is known of its standard input: a here-document, a here-string, an `echo` before the pipe."""
    source: str = ""
    """The file that its standard input comes from: `bash <file`, `cat file | bash`."""
    said: str | None = None
    """What is known of its standard output."""
    inner: tuple[str, ...] = ()
    """Names of the commands whose output is in its words: `scancel $(squeue …)`."""
    upstream: tuple[str, ...] = ()
    """Names of the commands before it in a pipeline."""
    cwd: str = ""
    """Where it runs, as far as `cd` tells; empty: not known, where the text begins."""
    background: bool = False

    @property
    def known(self) -> bool:
        """True when no word is partly unknown."""
        return not any(UNKNOWN in word for word in self.words)


class Parsed(msgspec.Struct, frozen=True):
    """All simple commands of a text, in order."""

    commands: tuple[Simple, ...]
    whole: bool
    """False: a part is no shell syntax that the parser knows, and what stands there was not seen."""


Parse = Callable[[str, Mapping[str, str]], Parsed]
"""A text, and the variables that are known before it begins (PWD: where that is, HOME)."""

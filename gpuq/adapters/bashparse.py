"""Shell text into simple commands, by tree-sitter's grammar of bash (the extra `gpuq-slurm[guard]`).

Nothing is run and nothing is expanded but what stands in the text itself: quotes are undone, and a variable that was set
to a constant before is replaced by it. All else is UNKNOWN (gpuq.core.guard.shell).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec

from gpuq.core.guard.output import output_of
from gpuq.core.guard.shell import UNKNOWN, Parsed, Simple
from gpuq.errors import HostError

if TYPE_CHECKING:
    from tree_sitter import Node

_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "e": "\x1b", "\\": "\\", "'": "'", '"': '"'}
_HEREDOC = re.compile(rb"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n(?:.*?\n)??[ \t]*\2[ \t]*(?:\n|$)", re.DOTALL)
_MAX = 1 << 18
"""Bytes of a text that are looked at; the slowest take a second."""
_MOST_VALUES = 16
"""Values of a loop's variable that are tried one by one."""


class Parser:
    """Parses texts; make one and use it again. Raises HostError when the extra is not installed."""

    def __init__(self) -> None:
        try:
            import tree_sitter
            import tree_sitter_bash
        except ImportError:
            raise HostError(
                "commands cannot be judged: tree-sitter is not installed", hint="pip install 'gpuq-slurm[guard]'"
            ) from None
        self._parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def __call__(self, text: str, variables: Mapping[str, str]) -> Parsed:
        """The simple commands of `text`, in the order in which they run. Never raises: see Parsed.whole.

        variables: what is known before it begins; PWD and HOME among them make directories known.
        """
        try:
            raw = text.encode("utf-8", "surrogateescape")[:_MAX]
        except UnicodeEncodeError:
            raw = text.encode("utf-8", "replace")[:_MAX]
        root = self._parser.parse(raw).root_node
        whole = not root.has_error
        if not whole and b"<<" in raw:  # `cat <<E; ls`: the grammar does not know it, and takes the text for commands
            root = self._parser.parse(_HEREDOC.sub(rb" \3\n", raw)).root_node
        walk = _Walk(variables)
        try:
            walk.visit(root)
        except RecursionError:
            return Parsed(tuple(walk.commands), False)
        return Parsed(tuple(walk.commands), whole and len(raw) < _MAX)


class _Walk:
    """One text: the commands found so far, and what is known of variables at this place."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.commands: list[Simple] = []
        self.variables = dict(variables)
        self.exported: dict[str, str] = {}
        self.arrays: dict[str, list[str]] = {}
        self.origins: dict[str, tuple[str, ...]] = {}
        """Of a variable: the names of the commands that its value came from."""
        self.upstream: tuple[str, ...] = ()
        """Names of the commands whose output is read here."""
        self.inside: dict[int, list[Simple]] = {}
        """The commands of each substitution that has been looked at."""
        self.directories: list[str] = []
        self.repeats = 1
        """How often this place has been looked at, by loops around loops."""

    def visit(self, node: Node, *, background: bool = False) -> None:
        kind = node.type
        if kind == "pipeline":
            self._pipeline(node, background)
        elif kind == "redirected_statement":
            self._redirected(node, None, "", background)
        elif kind in _COMMANDS:
            self._command(node, background=background)
        elif kind == "variable_assignment":
            for substitution in _substitutions(node):
                self._substitution(substitution)
            name, value = self._assignment(node)
            self.variables[name] = value
            if name in self.exported:
                self.exported[name] = value
        elif kind == "for_statement":
            self._loop(node)
        elif kind == "subshell":
            self._apart(node)
        elif kind in {"command_substitution", "process_substitution"}:
            self._substitution(node)
        else:
            self._children(node)

    def _children(self, node: Node) -> None:
        for child, following in zip_longest(node.children, node.children[1:]):
            if child.is_named:
                self.visit(child, background=following is not None and following.type == "&")

    def _apart(self, node: Node) -> None:
        """A shell of its own: what it sets and where it goes ends with it."""
        kept = dict(self.variables), dict(self.exported), list(self.directories)
        self._children(node)
        self.variables, self.exported, self.directories = kept

    def _substitution(self, node: Node) -> list[Simple]:
        """The commands in a substitution; they are looked at once, however often their output is asked for."""
        found = self.inside.get(node.id)
        if found is None:
            before = len(self.commands)
            self._apart(node)
            found = self.inside[node.id] = self.commands[before:]
        return found

    def _loop(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        name = "" if variable is None else _text(variable)
        body = node.child_by_field_name("body")
        words: list[str] = []
        origin: list[str] = []
        for child in node.named_children:
            if child not in (variable, body):
                words += self._split(child)
                origin += self._origin(child)
        known = bool(words) and not any(UNKNOWN in word for word in words)
        self.origins[name] = tuple(origin)
        values = words if known and len(words) * self.repeats <= _MOST_VALUES else [UNKNOWN]
        self.repeats *= len(values)
        for value in values:
            self.variables[name] = value
            self.inside = {}  # what stands in a substitution may have the variable in it
            if body is not None:
                self._children(body)
        self.repeats //= len(values)
        self.variables[name] = values[-1]

    def _pipeline(self, node: Node, background: bool, said: str | None = None) -> None:
        outer, source = self.upstream, ""
        for child in node.named_children:
            before = len(self.commands)
            kept = dict(self.variables)  # each part is a shell of its own
            if child.type == "redirected_statement":
                self._redirected(child, said, source, background)
            elif child.type in _COMMANDS:
                self._command(child, stdin=said, source=source, background=background)
            else:
                self.visit(child, background=background)
            self.variables = kept
            made = self.commands[before:]
            simple = bool(made) and child.type in {"command", "redirected_statement"}
            said = made[-1].said if simple else "\n".join(filter(None, (one.said for one in made))) or None
            source = made[-1].words[1] if simple and made[-1].words[:1] == ("cat",) and len(made[-1].words) == 2 else ""
            names = [one.words[0] for one in made if one.words]
            self.upstream = tuple(dict.fromkeys((*self.upstream, *names)))
        self.upstream = outer

    def _redirected(self, node: Node, stdin: str | None, source: str, background: bool) -> None:
        writes: list[str] = []
        behind: list[Node] = []
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "heredoc_redirect":
                body = next((child for child in redirect.children if child.type == "heredoc_body"), None)
                stdin = "" if body is None else self._joined(body)
                for substitution in [] if body is None else _substitutions(body):
                    self._substitution(substitution)
                # `cat <<E >file` and `cat <<E | bash`: the rest of the line belongs to the here-document in this grammar
                for child in redirect.named_children:
                    if child.type == "file_redirect":
                        source = self._file(child, writes) or source
                    elif child.type not in {"heredoc_start", "heredoc_body", "heredoc_end"}:
                        behind.append(child)
            elif redirect.type == "file_redirect":
                source = self._file(redirect, writes) or source
            elif redirect.type == "herestring_redirect":
                stdin = self._word(redirect.named_children[-1]) if redirect.named_children else None
        body = node.child_by_field_name("body")
        before = len(self.commands)
        if body is not None and body.type in _COMMANDS:
            self._command(body, stdin=stdin, source=source, writes=tuple(writes), background=background)
        else:
            if body is not None:
                self.visit(body, background=background)
            if writes:
                self.commands.append(Simple(writes=tuple(writes), cwd=self.variables.get("PWD", "")))
        said = self.commands[-1].said if len(self.commands) > before else None
        for child in behind:
            if child.type in _COMMANDS:
                self._command(child, stdin=said)
            elif child.type == "pipeline":
                self._pipeline(child, False, said)
            else:
                self.visit(child)

    def _file(self, redirect: Node, writes: list[str]) -> str:
        """Adds the file of a redirection to `writes`; returns it when it is one to read from."""
        target = redirect.child_by_field_name("destination")
        operator = next((child.type for child in redirect.children if not child.is_named), "")
        if target is None:
            return ""
        word = self._word(target)
        if operator.startswith((">", "&>", "<>")) and operator != ">&":
            writes.append(word)
        return word if operator == "<" else ""

    def _command(
        self,
        node: Node,
        *,
        stdin: str | None = None,
        source: str = "",
        writes: tuple[str, ...] = (),
        background: bool = False,
    ) -> None:
        words: list[str] = []
        assignments: list[tuple[str, str]] = []
        more: list[str] = []
        inner: list[str] = []
        for substitution in _substitutions(node):
            self._substitution(substitution)
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type == "file_redirect":
                source = self._file(child, more) or source
            elif child.type == "herestring_redirect":
                stdin = self._word(child.named_children[-1])
            elif child.is_named or child.type in {"declare", "export", "local", "readonly", "typeset", "unset"}:
                words += self._split(child)
                inner += self._origin(child)
        if node.type == "declaration_command":
            self.variables.update(assignments)  # export S=sbatch
            words = words[1:]
            if node.children[0].type == "export":
                self.exported.update(assignments)
                self.exported.update({name: self.variables[name] for name in words if name in self.variables})
        if node.type == "test_command":
            words = []
        one = Simple(
            words=tuple(words),
            assignments=(*self.exported.items(), *assignments),
            writes=(*writes, *more),
            stdin=stdin,
            source=source,
            inner=tuple(inner),
            upstream=self.upstream,
            cwd=self.variables.get("PWD", ""),
            background=background,
        )
        self.commands.append(msgspec.structs.replace(one, said=output_of(one)))
        self._effects(words)

    def _effects(self, words: list[str]) -> None:
        """What a builtin leaves behind: a directory, a variable."""
        match words:
            case ["cd"]:
                self._go(self.variables.get("HOME", UNKNOWN))
            case ["cd", "-"]:
                self._go(self.variables.get("OLDPWD", UNKNOWN))
            case ["cd", *_, where]:
                self._go(where)
            case ["pushd", where]:
                self.directories.append(self.variables.get("PWD", ""))
                self._go(where)
            case ["popd"] if self.directories:
                self.variables["PWD"] = self.directories.pop()
            case ["read" | "mapfile" | "readarray", *names]:
                for name in names:
                    self.variables[name] = UNKNOWN
                    self.origins[name] = self.upstream

    def _go(self, where: str) -> None:
        here = self.variables.get("PWD")
        if here is not None and UNKNOWN not in where:
            self.variables["OLDPWD"] = here
            self.variables["PWD"] = posixpath.normpath(posixpath.join(here, where))

    def _origin(self, node: Node) -> Iterator[str]:
        """Names of the commands whose output is in a word: in a substitution, or in a variable that was set by one."""
        for substitution in _substitutions(node, itself=True):
            yield from (one.words[0] for one in self._substitution(substitution) if one.words)
        for match in re.finditer(r"\$\{?(\w+)", _text(node) if node.type != "raw_string" else ""):
            yield from self.origins.get(match[1], ())

    def _split(self, node: Node) -> list[str]:
        """The words that a word becomes: `$CMD` is split at its blanks, and `"${CMD[@]}"` is an array's elements."""
        inner = node.named_children[0] if node.type == "command_name" and node.named_children else node
        match = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', _text(inner))
        if match and match[1] in self.arrays:
            return self.arrays[match[1]]
        word = self._word(node)
        return word.split() if inner.type in {"simple_expansion", "expansion"} and UNKNOWN not in word else [word]

    def _assignment(self, node: Node) -> tuple[str, str]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name is not None and value is not None:
            self.origins[_text(name)] = tuple(self._origin(value))
            if value.type == "array":
                self.arrays[_text(name)] = [word for child in value.named_children for word in self._split(child)]
        return ("" if name is None else _text(name)), ("" if value is None else self._word(value))

    def _word(self, node: Node) -> str:
        kind = node.type
        if kind in {"command_name", "concatenation", "string", "translated_string", "array"}:
            return self._joined(node)
        if kind == "word":
            word = _ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], _text(node))
            home = self.variables.get("HOME")
            return home + word[1:] if home and (word == "~" or word.startswith("~/")) else word
        if kind == "string_content":
            return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], _text(node))
        if kind == "raw_string":
            return _text(node)[1:-1]
        if kind == "ansi_c_string":
            return _ESCAPE.sub(lambda m: _ANSI.get(m[1], UNKNOWN), _text(node)[2:-1])
        if kind in {"simple_expansion", "expansion"}:
            match = re.fullmatch(r"\$(\w+)|\$\{(\w+)(?::?[-=]([\w./-]*))?\}", _text(node))
            return self.variables.get(match[1] or match[2], match[3] or UNKNOWN) if match else UNKNOWN
        if kind in {"number", "heredoc_content", "variable_name", "test_operator", "regex", "extglob_pattern"}:
            return _text(node)
        if kind == "command_substitution":
            return self._substituted(node)
        if kind == "process_substitution":
            self._substitution(node)
        return UNKNOWN

    def _substituted(self, node: Node) -> str:
        """`$(which sbatch)`, `$(command -v sbatch)` and `$(echo sbatch)` are sbatch; `$(cat <<E …)` is its text."""
        inside = self._substitution(node)
        if len(inside) != 1 or not inside[0].known:
            return UNKNOWN
        match inside[0].words:
            case ("pwd", *_):
                return self.variables.get("PWD", UNKNOWN)
            case (
                ("which" | "realpath" | "readlink", *_, name)
                | ("command", "-v" | "-V", name)
                | ("type", "-p" | "-P", name)
            ):
                return name
        said = inside[0].said
        return UNKNOWN if said is None else said.strip("\n")

    def _joined(self, node: Node) -> str:
        """The pieces of a word, with what stands between them: the grammar has no node for it."""
        if not node.named_children:
            text = _text(node)
            return text[1:-1] if node.type == "string" else text
        pieces = []
        start = node.start_byte + (1 if node.type == "string" else 0)
        end = node.end_byte - (1 if node.type == "string" else 0)
        raw = node.text or b""
        for child in node.named_children:
            pieces.append(_decode(raw[start - node.start_byte : child.start_byte - node.start_byte]))
            pieces.append(self._word(child))
            start = child.end_byte
        pieces.append(_decode(raw[start - node.start_byte : end - node.start_byte]))
        return "".join(pieces)


def _substitutions(node: Node, *, itself: bool = False) -> Iterator[Node]:
    if itself and node.type in {"command_substitution", "process_substitution"}:
        yield node
        return
    for child in node.named_children:
        if child.type in {"command_substitution", "process_substitution"}:
            yield child
        elif child.type not in _COMMANDS:
            yield from _substitutions(child)


def _text(node: Node) -> str:
    return _decode(node.text or b"")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")

"""Where the words of a shell script stand, so that one of them can be replaced and nothing else is touched.

The reader knows quotes, comments, line continuations, here-documents, `$(…)`, `${…}` and arrays; it expands nothing.
Text that is no shell script gives odd words, and never an error.
"""

from __future__ import annotations

import bisect
import re

import msgspec


class Word(msgspec.Struct, frozen=True):
    """One word as it is written, quotes and all: `text[start:end]`."""

    start: int
    end: int
    line: int
    """From 1."""
    command: int
    """Words of one simple command (or of one array) share it."""
    raw: str


class Default(msgspec.Struct, frozen=True):
    """The word of `${NAME:-word}`, `${NAME-word}`, `${NAME:=word}` or `${NAME=word}`."""

    name: str
    start: int
    end: int
    line: int
    raw: str
    quoted: bool
    """True between double quotes, where single quotes are ordinary characters."""


class Script(msgspec.Struct, frozen=True):
    """What `read_script` found, in the order of the text."""

    words: tuple[Word, ...]
    defaults: tuple[Default, ...]


def read_script(text: str) -> Script:
    """The words of a shell script; those inside `$(…)` and arrays are words of their own beside the one around them."""
    reader = _Reader(text)
    reader.commands(nested=False)
    return Script(tuple(sorted(reader.words, key=lambda word: (word.start, -word.end))), tuple(reader.defaults))


def constant(raw: str) -> str | None:
    """The value of a word in which nothing is expanded, quotes removed; None: the shell would have to be asked."""
    value, quote, place = [], "", 0
    while place < len(raw):
        char = raw[place]
        place += 1
        if quote == "'" or (char == "'" and not quote):
            quote = "" if char == "'" and quote else "'"
            value.append(char if char != "'" else "")
        elif char == '"':
            quote = "" if quote else '"'
        elif char == "\\":
            after = raw[place : place + 1]
            place += 1
            if quote and after not in '$`"\\\n':
                value.append("\\")
            value.append("" if after == "\n" else after)
        elif char in "$`":
            return None
        else:
            value.append(char)
    return None if quote else "".join(value)


def reference(raw: str) -> str:
    """The variable of a word that is nothing but `$NAME` or `${NAME}`, quoted or not; else empty."""
    match = re.fullmatch(r"(\"?)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})\1", raw)
    return (match[2] or match[3]) if match else ""


_BLANK = " \t\r"
_META = frozenset(" \t\r\n;&|<>()")
_DEFAULT = re.compile(r"([A-Za-z_]\w*)(?::?[-=])")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_DELIMITER = re.compile(r"""(?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s;&|<>()'"\\])+""")


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.words: list[Word] = []
        self.defaults: list[Default] = []
        self._lines = [match.start() for match in re.finditer("\n", text)]
        self._last = 0
        """Number of the last command that was begun."""
        self._documents: list[tuple[str, bool]] = []

    def _line(self, place: int) -> int:
        return bisect.bisect_left(self._lines, place) + 1

    def _at(self, word: str) -> bool:
        return self.text.startswith(word, self.place)

    def _begin(self) -> int:
        self._last += 1
        return self._last

    def commands(self, *, nested: bool) -> None:
        """Read on to the end, or, `nested`, past the `)` that closes."""
        command = self._begin()
        skip = False  # the next word is where a redirection goes to
        while self.place < len(self.text):
            char = self.text[self.place]
            if self._at("\\\n"):
                self.place += 2
            elif char in _BLANK:
                self.place += 1
            elif char == "\n":
                self.place += 1
                self._skip_documents()
                command = self._begin()
            elif char == "#":
                self._skip_to("\n")
            elif self._at("<<") and not self._at("<<<"):
                self._document()
            elif self._at("<(") or self._at(">("):
                self.place += 2
                self.commands(nested=True)
                skip = False  # `< <(…)`: it was that
            elif char in "<>" or self._at("&>"):
                self.place += 1
                while self.place < len(self.text) and self.text[self.place] in "<>&|":
                    self.place += 1
                skip = True
            elif self._at("(("):
                self._arithmetic()
            elif char == ")" and nested:
                self.place += 1
                return
            elif char in ";&|()":
                self.place += 1
                command = self._begin()
            else:
                word = self._word(command)
                if not skip:
                    self.words.append(word)
                skip = False

    def _word(self, command: int) -> Word:
        start = self.place
        while self.place < len(self.text):
            char = self.text[self.place]
            if char == "(" and _ARRAY.fullmatch(self.text, start, self.place):
                self.place += 1
                self.commands(nested=True)
                break
            if char in _META:
                break
            if not self._expansion(quoted=False):
                if char == "'":
                    self.place += 1
                    self._skip_to("'", past=True)
                elif char == '"':
                    self._double()
                else:
                    self.place += 2 if char == "\\" else 1
        self.place = min(self.place, len(self.text))
        return Word(start, self.place, self._line(start), command, self.text[start : self.place])

    def _expansion(self, *, quoted: bool) -> bool:
        """Read past a `$…` or `` `…` `` here; False: there is none."""
        if self._at("$(("):
            self.place += 1
            self._arithmetic()
        elif self._at("$("):
            self.place += 2
            self.commands(nested=True)
        elif self._at("${"):
            self._brace(quoted=quoted)
        elif self._at("$'") and not quoted:
            self.place += 2
            while self.place < len(self.text) and self.text[self.place] != "'":
                self.place += 2 if self.text[self.place] == "\\" else 1
            self.place += 1
        elif self._at('$"') and not quoted:
            self.place += 1
            self._double()
        elif self._at("`"):
            self.place += 1
            while self.place < len(self.text) and self.text[self.place] != "`":
                self.place += 2 if self.text[self.place] == "\\" else 1
            self.place += 1
        else:
            return False
        return True

    def _double(self) -> None:
        self.place += 1
        while self.place < len(self.text) and self.text[self.place] != '"':
            if not self._expansion(quoted=True):
                self.place += 2 if self.text[self.place] == "\\" else 1
        self.place += 1

    def _brace(self, *, quoted: bool) -> None:
        self.place += 2
        match = _DEFAULT.match(self.text, self.place)
        if match:
            self.place = match.end()
        start = self.place
        while self.place < len(self.text) and self.text[self.place] != "}":
            if self._expansion(quoted=quoted):
                continue
            char = self.text[self.place]
            if char == "'" and not quoted:
                self.place += 1
                self._skip_to("'", past=True)
            elif char == '"':
                self._double()
            else:
                self.place += 2 if char == "\\" else 1
        end = min(self.place, len(self.text))
        if match:
            raw = self.text[start:end]
            self.defaults.append(Default(match[1], start, end, self._line(start), raw, quoted))
        self.place += 1

    def _arithmetic(self) -> None:
        depth = 0
        while self.place < len(self.text):
            char = self.text[self.place]
            self.place += 1
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                return

    def _document(self) -> None:
        self.place += 2
        tabs = self._at("-")
        self.place += tabs
        while self.place < len(self.text) and self.text[self.place] in _BLANK:
            self.place += 1
        match = _DELIMITER.match(self.text, self.place)
        if match:
            self.place = match.end()
            self._documents.append((re.sub(r"['\"\\]", "", match[0]), tabs))

    def _skip_documents(self) -> None:
        for delimiter, tabs in self._documents:
            while self.place < len(self.text):
                start = self.place
                self._skip_to("\n", past=True)
                line = self.text[start : self.place].rstrip("\n")
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self._documents.clear()

    def _skip_to(self, char: str, *, past: bool = False) -> None:
        found = self.text.find(char, self.place)
        self.place = len(self.text) if found < 0 else found + past

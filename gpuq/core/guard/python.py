"""What a short Python program (`python -c`, `python - <<E`) runs and writes, as far as constants tell."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings

import msgspec

from gpuq.core.guard.unwrap import quoted

_RUNS = re.compile(
    r"(^|\.)(system|popen|getoutput|getstatusoutput|run|Popen|call|check_call|check_output|spawn\w*|exec[vl]\w*)$"
)
_METHODS = {"write_text": "edited", "write_bytes": "edited", "touch": "changed"} | dict.fromkeys(
    ("unlink", "rmdir", "rename", "replace"), "removed"
)
_FIRST = {"os.remove": "removed", "os.unlink": "removed", "shutil.rmtree": "removed", "os.truncate": "edited"}
_BOTH = {"os.rename", "os.replace", "shutil.move"}
_SECOND = {"shutil.copy", "shutil.copy2", "shutil.copyfile"}
_SHELL_UNKNOWN = "$_"
"""What a shell does not know either."""


class Deeds(msgspec.Struct):
    """texts: for a shell; writes: files, and what becomes of them; programs: Python files and modules that are run."""

    texts: list[str] = []
    writes: list[tuple[str, str]] = []
    programs: list[str] = []


def deeds(code: str) -> Deeds:
    """What `code` is known to do. What cannot be told from constants is not in it."""
    found = Deeds()
    try:
        with warnings.catch_warnings(action="ignore"):  # about the code that is judged
            tree = ast.parse(code)
        reader = _Reader(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                reader.call(node, found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return found


class _Reader:
    def __init__(self, tree: ast.AST) -> None:
        self.names: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        """Of what was imported: its name here, and the module that it is or comes from."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                path = self.path(node.value)
                if path is not None:
                    self.names[node.targets[0].id] = path
            elif isinstance(node, ast.Import):
                self.modules |= {one.asname or one.name: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.modules |= {one.asname or one.name: node.module for one in node.names}

    def call(self, node: ast.Call, found: Deeds) -> None:
        name = _dotted(node.func)
        if _RUNS.search(name):
            for argument in node.args[:2]:
                text = self.text(argument)
                if text is not None:
                    found.texts.append(text)
        first = self.path(node.args[0]) if node.args else None
        second = self.path(node.args[1]) if len(node.args) > 1 else None
        if name in {"open", "io.open"} and first and re.search("[wax+]", self.mode(node, 1)):
            found.writes.append((first, "overwritten"))
        elif name in {"exec", "runpy.run_path", "run_path"} and node.args:
            inner = [_constant(one) for one in ast.walk(node.args[0])]
            found.programs += [one for one in inner if one and one.endswith(".py")]
        elif name in _FIRST and first:
            found.writes.append((first, _FIRST[name]))
        elif name in _BOTH | _SECOND and second:
            found.writes.append((second, "overwritten"))
            if name in _BOTH and first:
                found.writes.append((first, "removed"))
        elif isinstance(node.func, ast.Attribute):
            path = self.path(node.func.value)
            if path and node.func.attr in _METHODS:
                if node.func.attr != "replace" or len(node.args) == 1:  # str.replace has two
                    found.writes.append((path, _METHODS[node.func.attr]))
            elif path and node.func.attr == "open" and re.search("[wax+]", self.mode(node, 0)):
                found.writes.append((path, "overwritten"))
        head, _, last = name.rpartition(".")
        if (last or name) in {"main", "train", "fit", "run"} and (head or name) in self.modules:
            found.programs.append(self.modules[head or name].replace(".", "/") + ".py")

    def path(self, node: ast.expr) -> str | None:
        """`"a"`, `Path("a")`, `Path("a") / "b"`, and a name that was given one of them."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            left, right = self.path(node.left), self.path(node.right)
            return None if left is None or right is None else posixpath.join(left, right)
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name.rpartition(".")[2] in {"Path", "PosixPath"} or name == "os.path.join":
                parts = [self.path(one) for one in node.args]
                known = [one for one in parts if one is not None]
                return posixpath.join(*known) if known and len(known) == len(parts) else None
            return None
        return _constant(node)

    def mode(self, node: ast.Call, place: int) -> str:
        given = [one.value for one in node.keywords if one.arg == "mode"] or node.args[place : place + 1]
        return (_constant(given[0]) if given else None) or ""

    def text(self, node: ast.expr) -> str | None:
        """What a shell would read: a text, or a list of words."""
        words = self.words(node)
        if words is not None:
            return " ".join(one if one == _SHELL_UNKNOWN else quoted(one) for one in words)
        return self.piece(node)

    def words(self, node: ast.expr) -> list[str] | None:
        if isinstance(node, ast.List | ast.Tuple):
            return [self.piece(one) or _SHELL_UNKNOWN for one in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left = self.words(node.left)
            return None if left is None else left + (self.words(node.right) or [_SHELL_UNKNOWN])
        return None

    def piece(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.JoinedStr):
            return "".join(_constant(one) or _SHELL_UNKNOWN for one in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            left = self.piece(node.left)
            behind = self.piece(node.right) or _SHELL_UNKNOWN if isinstance(node.op, ast.Add) else ""
            return None if left is None else re.sub(r"%[sdr]", _SHELL_UNKNOWN, left) + behind
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            left = self.piece(node.func.value)
            return None if left is None else re.sub(r"\{\w*\}", _SHELL_UNKNOWN, left)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            return (
                self.piece(node.args[0])
                if _dotted(node.func) == "shlex.split" and node.args
                else self.piece(node.func.value)
            )
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        return _constant(node)


def _constant(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _dotted(node: ast.expr) -> str:
    """`os.path.join`; for what is called on something else than a name, the last part alone."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))

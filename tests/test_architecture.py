"""Who may import whom, read from the source. A broken arrow fails here, not in a review."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuq

PACKAGE = Path(gpuq.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400
"""Lines. A module that needs a tour is too big."""
ONE_DOOR = {"subprocess": "gpuq.adapters.proc", "pyslurm": "gpuq.adapters.slurm.pyslurm", "pynvml": "gpuq.adapters.gpu"}
"""Packages that one module imports; empty: none does yet."""
KNOWN = {
    "click": ("gpuq.cli",),
    "psutil": ("gpuq.adapters",),
    "requests": ("gpuq.adapters.sinks.discord",),
    "discord_webhook": ("gpuq.adapters.sinks.discord",),
    "apprise": ("gpuq.adapters.sinks.apprise_child",),
    "watchdog": ("gpuq.adapters.filewatch",),
}
"""Third-party packages and the rooms that may import them."""


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that is imported anywhere in the file, also inside functions, with its line."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            yield base, node.lineno
            for alias in node.names:  # `from gpuq import cli` imports gpuq.cli
                yield f"{base}.{alias.name}", node.lineno
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in {"import_module", "__import__"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value), node.lineno


def inside(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def breaches(room: str, forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """Imports in `room` of anything in `forbidden` that is not in `allowed` (or a parent of it)."""
    return [
        f"{name_of(path)}:{line} imports {module}"
        for path in MODULES
        if inside(name_of(path), room)
        for module, line in imports(path)
        if any(inside(module, one) for one in forbidden)
        and not any(inside(module, one) or inside(one, module) for one in allowed)
    ]


def test_the_reader_of_imports_sees_all_of_them(tmp_path: Path) -> None:
    path = PACKAGE / "core" / "units.py"
    assert ("datetime", 9) in list(imports(path))
    lazy = {module for module, _ in imports(PACKAGE / "adapters" / "configfiles.py")}
    assert {"tomllib", "gpuq.adapters.git", "gpuq.core.config"} <= lazy
    assert "gpuq.adapters.embedded.layout" in {m for m, _ in imports(PACKAGE / "adapters" / "slurm" / "locate.py")}
    assert len(MODULES) > 30


def test_core_is_pure() -> None:
    impure = (
        "os",
        "subprocess",
        "time",
        "logging",
        "sys",
        "shutil",
        "socket",
        "threading",
        "signal",
        "tempfile",
        "fcntl",
        "asyncio",
        "random",
        "io",
        "sqlite3",
    )
    assert breaches("gpuq.core", impure) == []
    assert breaches("gpuq.core", ("gpuq",), allowed=("gpuq.core", "gpuq.errors")) == []


def test_core_touches_no_file() -> None:
    touching = {
        "open",
        "exists",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "mkdir",
        "unlink",
        "stat",
        "iterdir",
        "resolve",
        "is_file",
        "is_dir",
        "now",
        "today",
    }
    found = [
        f"{name_of(path)}:{node.lineno} calls {called}"
        for path in MODULES
        if inside(name_of(path), "gpuq.core")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (called := getattr(node.func, "attr", getattr(node.func, "id", ""))) in touching
    ]
    assert found == []


def test_errors_is_a_leaf() -> None:
    assert breaches("gpuq.errors", ("gpuq",)) == []


def test_adapters_know_only_core_and_errors() -> None:
    assert breaches("gpuq.adapters", ("gpuq",), allowed=("gpuq.adapters", "gpuq.core", "gpuq.errors")) == []


def test_use_cases_know_no_command_line_and_run_no_program() -> None:
    assert breaches("gpuq.usecases", ("gpuq.cli", "click", "rich", "subprocess", "argparse")) == []


@pytest.mark.parametrize("package", sorted(KNOWN))
def test_a_package_is_imported_only_where_it_belongs(package: str) -> None:
    found = {name_of(path) for path in MODULES for module, _ in imports(path) if inside(module, package)}
    assert [name for name in found if not any(inside(name, room) for room in KNOWN[package])] == []


@pytest.mark.parametrize("package", sorted(ONE_DOOR))
def test_there_is_one_door_to_other_programs_to_pyslurm_and_to_nvml(package: str) -> None:
    found = {name_of(path) for path in MODULES for module, _ in imports(path) if inside(module, package)}
    assert found == ({ONE_DOOR[package]} if ONE_DOOR[package] else set())


def test_no_other_way_to_run_a_program_is_used() -> None:
    ways = {
        "system",
        "popen",
        "fork",
        "forkpty",
        "posix_spawn",
        "posix_spawnp",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "spawnv",
        "spawnve",
        "Popen",
    }
    found = [
        f"{name_of(path)}:{node.lineno} calls {node.func.attr}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ways
    ]
    doors = ("gpuq.adapters.proc:", "gpuq.adapters.child:")  # child: the program inside a job, which must cost nothing
    assert all(one.startswith(doors) for one in found), found


def test_one_module_replaces_files() -> None:
    """os.replace and os.rename, and Path.replace and Path.rename (one argument; str.replace takes two)."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            of_os = isinstance(node.func.value, ast.Name) and node.func.value.id in {"os", "shutil"}
            arguments = len(node.args)
            if (of_os and node.func.attr in {"replace", "rename", "renames", "link", "move"}) or (
                node.func.attr in {"replace", "rename"} and arguments == 1 and not node.keywords
            ):
                found.append(name_of(path))
    assert set(found) == {"gpuq.adapters.files"}


def test_modules_are_short_enough_to_be_read() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_library_code_prints_nothing_but_debug_lines() -> None:
    found = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert set(found) <= {"gpuq.adapters.proc"}

"""What importing coordlock brings in. Which of its modules may import which: see `test_layers`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import coordlock

CORE = Path(coordlock.__file__).parent
#: Of coordlock's packages: which top-level packages they may import beside the standard library.
ALLOWED = {
    "": {"coordlock"},
    "backend": {"coordlock"},
    "runtime": {"coordlock"},
    "model": {"coordlock"},
    "kernel": {"coordlock", "tenacity"},
    "cli": {"coordlock", "click", "rich"},
    "fencing": {"coordlock", "sqlalchemy", "redis"},
    # Test suites for users, who have pytest then.
    "testing": {"coordlock", "pytest", "hpack"},
}


def imported_packages(source: str) -> Iterator[str]:
    """The top-level packages that ``source`` imports anywhere, in functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "coordlock" if node.level else (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            argument = node.args[0]
            assert isinstance(argument, ast.Constant), "an import that cannot be checked"
            yield str(argument.value).partition(".")[0]


def sources() -> Iterator[tuple[str, Path]]:
    for file in sorted(CORE.rglob("*.py")):
        parts = file.relative_to(CORE).parts
        # ``python -m coordlock`` is the command line.
        area = "cli" if parts == ("__main__.py",) else ""
        yield (parts[0] if len(parts) > 1 else area), file


def loaded_by(statement: str) -> set[str]:
    """The top-level packages in a fresh interpreter after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("area", ALLOWED)
def test_the_core_imports_no_backend_and_only_what_it_may(area: str) -> None:
    files = [file for where, file in sources() if where == area]
    assert files or area != ""
    for file in files:
        foreign = set(imported_packages(file.read_text("utf-8"))) - set(sys.stdlib_module_names)
        assert foreign <= ALLOWED[area], file
        assert not [name for name in foreign if name.startswith("coordlock_")]


def test_every_part_of_the_core_is_covered_by_these_rules() -> None:
    assert {where for where, _ in sources()} <= set(ALLOWED)


def test_decisions_are_apart_from_time_and_io() -> None:
    """The pure modules import nothing that waits, sends or reads a clock."""
    for file in (CORE / "errors.py", *(CORE / "model").glob("*.py")):
        imported = set(imported_packages(file.read_text("utf-8")))
        assert not imported & {"time", "threading", "asyncio", "socket", "os", "concurrent"}, file


def test_importing_coordlock_imports_no_service_and_no_tool() -> None:
    loaded = loaded_by("import coordlock")
    heavy = {"kazoo", "grpc", "google", "etcd3", "click", "rich", "pytest", "hypothesis"}
    assert not loaded & heavy
    assert not loaded & {"sqlalchemy", "redis", "httpx", "requests"}
    assert not [name for name in loaded if name.startswith("coordlock_")]


def test_using_one_backend_imports_no_other() -> None:
    loaded = loaded_by("import coordlock; coordlock.connect('memory://').close()")
    assert [name for name in loaded if name.startswith("coordlock_")] == ["coordlock_memory"]
    assert not loaded & {"kazoo", "grpc", "google"}


def test_importing_starts_no_thread_and_reads_no_configuration() -> None:
    code = (
        "import builtins, threading, coordlock\nassert threading.active_count() == 1\nprint('fine')"
    )
    environment = {**os.environ, "COORDLOCK_URL": "nonsense", "COORDLOCK_CONFIG": "missing"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_every_module_names_its_public_things() -> None:
    for where, file in sources():
        if where in ("", "runtime", "model", "kernel", "testing") and file.name != "__init__.py":
            tree = ast.parse(file.read_text("utf-8"))
            assert ast.get_docstring(tree), file
            assigned = {
                target.id
                for node in tree.body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            assert "__all__" in assigned, file

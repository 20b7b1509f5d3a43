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
#: What rooms import beside the standard library, where that is not coordlock alone.
ALLOWED = {
    # The span that a program is in, where the program uses OpenTelemetry.
    "runtime": {"coordlock", "opentelemetry"},
    "kernel": {"coordlock", "tenacity"},
    "cli": {"coordlock", "argcomplete"},
    "fencing": {"coordlock", "sqlalchemy", "redis"},
    "jobs": {"coordlock", "cronsim"},
    # Each adapter imports its library.
    "telemetry": {"coordlock", "opentelemetry", "prometheus_client"},
    # Each module imports its framework, and whoever uses it has that.
    "integrations": {
        *("coordlock", "alembic", "apscheduler", "celery", "django", "fastapi", "flask"),
        *("pytest", "sqlalchemy", "starlette", "werkzeug"),
    },
    # Test suites for users, who have pytest then; and a service in memory.
    "testing": {"coordlock", "coordlock_memory", "pytest", "hpack"},
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
            if isinstance(argument, ast.JoinedStr):  # its beginning tells the package
                argument = argument.values[0]
            assert isinstance(argument, ast.Constant), "an import that cannot be checked"
            yield str(argument.value).partition(".")[0]


def sources() -> Iterator[tuple[str, Path]]:
    for file in sorted(CORE.rglob("*.py")):
        parts = file.relative_to(CORE).parts
        # ``python -m coordlock`` is the command line.
        area = "cli" if parts == ("__main__.py",) else ""
        yield (parts[0] if len(parts) > 1 else area), file


#: What `import coordlock` loads of coordlock, and nothing else that Python has not loaded itself.
IMPORTED = {"coordlock"}
#: How many modules of coordlock's a program loads at most, its backend's not counted: each makes
#: every start slower.
FOR_A_LOCK = 60
FOR_RUN = 80
#: Rooms that a plain lock never enters, and the kinds of locks that it is not.
NOT_FOR_A_LOCK = (
    *("fencing", "recipes", "testing", "work", "model.events"),
    *("locks.upgradeable", "locks.reentrant", "locks.several"),
)
#: Slow to import, and not needed for a lock on this machine.
SLOW = {
    *("click", "pathlib"),
    *("asyncio", "concurrent", "email", "hashlib", "http", "importlib.metadata", "multiprocessing"),
    *("random", "secrets", "shutil", "socket", "ssl", "statistics", "subprocess", "tempfile"),
    *("tomllib", "zipfile"),
    *("google", "grpc", "kazoo", "tenacity"),
}


def modules_after(code: str, *arguments: str) -> set[str]:
    """The modules in a fresh interpreter after ``code``, which need not end by itself."""
    told = f"import atexit, sys; atexit.register(lambda: print('', *sys.modules))\n{code}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COORDLOCK_")}
    done = subprocess.run(
        [sys.executable, "-c", told, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "coordlock"}


def check_budget(loaded: set[str], most: int) -> None:
    assert len(ours(loaded)) <= most
    assert not [name for name in ours(loaded) if name.startswith(NOT_FOR_A_LOCK, len("coordlock."))]


def test_importing_coordlock_imports_nothing_before_it_is_used() -> None:
    loaded = modules_after("import coordlock")
    assert ours(loaded) == IMPORTED
    assert loaded - modules_after("import __future__") == IMPORTED


def test_taking_a_lock_imports_what_that_needs(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    loaded = modules_after(
        "import sys, coordlock\n"
        "with coordlock.connect(sys.argv[1]) as client, client.lock('x'): pass",
        f"local://{tmp_path}",
    )
    assert loaded & SLOW == set()
    check_budget(loaded, FOR_A_LOCK)


@pytest.mark.parametrize("scheme", ["local", pytest.param("etcd", marks=pytest.mark.etcd)])
def test_the_command_run_imports_what_that_needs(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tmp_path.chmod(0o700)
    url = f"local://{tmp_path}"
    if scheme == "etcd":
        url = f"{request.getfixturevalue('etcd').url}/imports"
    loaded = modules_after(
        "from coordlock.cli import main; main()", "run", "x", "--url", url, "--", "true"
    )
    check_budget(loaded, FOR_RUN)
    assert {name for name in loaded if name.startswith("coordlock_") and "." not in name} == {
        f"coordlock_{scheme}"
    }
    # gRPC itself imports asyncio and what that needs.
    slow = {"importlib.metadata", "kazoo", "tenacity"} if scheme == "etcd" else SLOW
    assert not loaded & slow


def test_the_core_imports_no_backend_and_only_what_it_may() -> None:
    for area, file in sources():
        foreign = set(imported_packages(file.read_text("utf-8"))) - set(sys.stdlib_module_names)
        assert foreign <= ALLOWED.get(area, {"coordlock"}), file
        backends = [name for name in foreign if name.startswith("coordlock_")]
        assert not backends or area == "testing"


def test_decisions_are_apart_from_time_and_io() -> None:
    """The pure modules import nothing that waits, sends or reads a clock."""
    for file in (CORE / "errors.py", CORE / "jobs/ledger.py", *(CORE / "model").glob("*.py")):
        imported = set(imported_packages(file.read_text("utf-8")))
        assert not imported & {"time", "threading", "asyncio", "socket", "os", "concurrent"}, file

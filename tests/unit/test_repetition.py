"""A few failed tests are repeated alone, and nothing else is forgiven."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

#: Fails the first time, in whichever phase; a file remembers.
FLAKY: Final = """
from pathlib import Path

import pytest


def first_time(name):
    mark = Path(__file__).with_name(name)
    seen = mark.exists()
    mark.touch()
    return not seen
"""
PASSES: Final = "\ndef test_passes():\n    pass\n"
FLAKES: Final = "\ndef test_{0}():\n    assert not first_time('{0}')\n"
FAILS: Final = "\ndef test_fails():\n    assert False\n"


def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit status and the output of a run of the tests in ``folder``, which repeats three."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "xdist.plugin"),
            *("-p", "tests.repetition", "--repeat-failed=3"),
            *arguments,
        ],
        cwd=folder,
        # Without other plugins, pytest starts in half the time.
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def write(folder: Path, *tests: str) -> None:
    (folder / "test_it.py").write_text("".join((FLAKY, *tests)))


def closing(output: list[str]) -> str:
    """What the closing line counts, without its time."""
    return output[-1].strip("= ").rpartition(" in ")[0]


def was_repeated(output: list[str]) -> bool:
    return any("repeating alone" in line for line in output)


@pytest.mark.parametrize("workers", ["-n2", "-n0"])
def test_a_flaky_test_passes_the_second_time_and_is_listed(folder: Path, workers: str) -> None:
    write(folder, PASSES, FLAKES.format("flaky"))
    status, output = run(folder, workers)
    assert status == 0
    assert closing(output) == "2 passed, 1 repeated"
    assert output[-2] == "REPEATED test_it.py::test_flaky"
    assert "E       AssertionError: assert not True" in output


def test_a_test_that_fails_again_has_failed(folder: Path) -> None:
    write(folder, PASSES, FLAKES.format("flaky"), FAILS)
    status, output = run(folder)
    assert status == 1
    assert closing(output) == "1 failed, 2 passed, 1 repeated"


def test_the_workers_repeat_nothing_beside_the_run(folder: Path) -> None:
    code = "\ndef test_fails():\n    print(file=open('runs', 'a'))\n    assert False\n"
    (folder / "test_it.py").write_text(code)
    run(folder, "-n2")
    assert len((folder / "runs").read_text().splitlines()) == 2


def test_four_failures_fail_at_once(folder: Path) -> None:
    write(folder, PASSES, *(FLAKES.format(f"flaky_{number}") for number in range(4)))
    status, output = run(folder)
    assert status == 1
    assert closing(output) == "4 failed, 1 passed"
    assert not was_repeated(output)


def test_errors_around_a_test_are_repeated_too(folder: Path) -> None:
    fixture = """
@pytest.fixture
def before():
    assert not first_time('before')

@pytest.fixture
def after():
    yield
    assert not first_time('after')

def test_before(before):
    pass

def test_after(after):
    pass
"""
    write(folder, fixture)
    status, output = run(folder)
    assert status == 0
    assert closing(output) == "2 passed, 2 repeated"


def test_the_arguments_hold_for_the_repetition(folder: Path) -> None:
    write(folder, PASSES, FLAKES.format("flaky"), FAILS)
    status, output = run(folder, "-n2", "-k", "passes or flaky", "test_it.py")
    assert status == 0
    assert closing(output) == "2 passed, 1 repeated"


def test_failures_of_earlier_runs_are_neither_counted_nor_repeated(folder: Path) -> None:
    write(folder, FAILS)
    (folder / "test_other.py").write_text(FLAKY + FLAKES.format("flaky"))
    assert run(folder, "test_it.py")[0] == 1
    status, output = run(folder, "test_other.py")
    assert status == 0
    assert closing(output) == "1 passed, 1 repeated"


@pytest.mark.parametrize(
    ("source", "arguments", "statuses"),
    [
        pytest.param("raise ValueError", ["-n2"], {1, 2}, id="an error of collection"),
        pytest.param("", [], {5}, id="no tests"),
        pytest.param(
            FLAKES.format("flaky") + PASSES, ["-x"], {1, 2}, id="a run that stops at a failure"
        ),
        pytest.param("def test(): raise KeyboardInterrupt", ["-n2"], {2}, id="Ctrl-C"),
    ],
)
def test_what_is_no_failure_of_a_test_fails_at_once(
    folder: Path, source: str, arguments: list[str], statuses: set[int]
) -> None:
    write(folder, source)
    status, output = run(folder, *arguments)
    assert status in statuses
    assert not was_repeated(output)


def test_a_worker_that_crashes_fails_at_once(folder: Path) -> None:
    crash = "\ndef test_crashes():\n    import os\n    assert not first_time('it') or os._exit(1)\n"
    write(folder, PASSES, crash)
    status, output = run(folder, "-n2")
    assert status == 1
    assert not was_repeated(output)

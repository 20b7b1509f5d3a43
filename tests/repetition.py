"""Repeats the few tests that failed, alone: what a busy machine fails must not stop a change.

A plugin of pytest, for ``-p tests.repetition --repeat-failed=3``. When no more tests than that
failed, they run once more at the end, in one process that has the machine to itself. The run
lists them with their first failures, and its closing line counts those that passed as passed and
as repeated. A test that fails again has failed.

Only failures of tests are repeated: an error of collection, a worker that crashed, a run that was
interrupted or stopped early fail at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Final

import pytest

__all__ = ["Repetition"]

OPTION: Final = "--repeat-failed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        type=int,
        default=0,
        metavar="N",
        help="repeat the tests that failed, alone and once, if they are at most N",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # The workers of xdist have a reporter, too, but the run does not end with theirs.
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    most: int = config.getoption("repeat_failed")
    if most and reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Repetition(config, reporter, most))


class Repetition:
    """One run's failures, and what came of their repetition."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter, most: int) -> None:
        self._config: Final = config
        self._reporter: Final = reporter
        self._most: Final = most
        self._failures: Final[dict[str, list[pytest.TestReport]]] = {}
        self._passed: Final[list[str]] = []
        #: Whether something failed that no repetition can mend.
        self._broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._broken |= report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """A worker of xdist has ended, with an error if it crashed."""
        self._broken |= error is not None

    # Last: the workers of xdist, and their servers, have ended then.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (
            session.exitstatus != pytest.ExitCode.TESTS_FAILED
            or self._broken
            or session.shouldfail
            or session.shouldstop
            or not 0 < len(self._failures) <= self._most
        ):
            return
        self._reporter.ensure_newline()
        self._reporter.write_sep("=", f"repeating alone what failed: {len(self._failures)}")
        status = self._repeat()
        self._passed.extend(sorted(set(self._failures) - self._failed_again()))
        self._count_as_passed(self._passed)
        if status == pytest.ExitCode.OK and len(self._passed) == len(self._failures):
            session.exitstatus = pytest.ExitCode.OK

    def _repeat(self) -> int:
        """The exit status of the tests that failed, in a process of their own."""
        arguments = [*self._config.invocation_params.args, f"{OPTION}=0", "--last-failed"]
        if self._config.pluginmanager.has_plugin("xdist"):
            arguments.append("-n0")
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode

    def _failed_again(self) -> set[str]:
        """What pytest's cache still has as failed: what has not run since is among it."""
        assert self._config.cache is not None
        return set(self._config.cache.get("cache/lastfailed", {}))

    def _count_as_passed(self, names: Iterable[str]) -> None:
        stats = self._reporter.stats
        for name in names:
            for report in self._failures[name]:
                stats["error" if report.when != "call" else "failed"].remove(report)
            first = self._failures[name][0]
            stats.setdefault("repeated", []).append(first)
            # What failed in its teardown only has passed before.
            if first.when != "teardown":
                passed = pytest.TestReport(name, first.location, {}, "passed", None, "call")
                stats.setdefault("passed", []).append(passed)

    def pytest_terminal_summary(self) -> None:
        if not self._passed:
            return
        self._reporter.write_sep("=", "failed beside other tests, passed when repeated alone")
        for name in self._passed:
            for report in self._failures[name]:
                self._reporter.write_sep("_", f"{name} ({report.when})")
                self._reporter.write_line(report.longreprtext)
        for name in self._passed:
            self._reporter.write_line(f"REPEATED {name}")

"""Client processes: their histories are whole and right, and mean something."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import coordlock
from coordlock.claim import Mode, Permit
from coordlock.testing.faults import Attempt, History, judge
from coordlock.testing.faults.events import Kind, Reach
from coordlock.testing.waiting import eventually
from tests.faults.crew import ProcessFailed
from tests.faults.stage import LOCKS, Stage
from tests.faults.workloads import WORKLOADS

ETCD = pytest.param("etcd", marks=pytest.mark.etcd)
ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.zookeeper)


@pytest.fixture
def url_of(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> Callable[[str], str]:
    def url_of(backend: str) -> str:
        if backend == "local":
            return f"local://{tmp_path}/state?ttl=2s"
        url: str = request.getfixturevalue(backend).url_for(root, ttl="2s")
        return url

    return url_of


def adds(history: History, *names: str) -> int:
    """How many adds were accepted, of these clients."""
    return sum(
        one.offered.kind is Kind.ADD
        for resource in history.resources.values()
        for one in resource.operations
        if one.accepted and (not names or one.offered.process in names)
    )


def failures(history: History) -> set[str]:
    return {one.failed.error for one in history.attempts.values() if one.failed}


def live(history: History) -> set[tuple[str, int | None]]:
    """The live tickets: their locks and tokens."""
    return {(one.lock, one.token) for one in history.granted if one.end is None}


def in_service(url: str) -> set[tuple[str, int | None]]:
    with coordlock.connect(url) as client:
        return {(name, one.token) for name in client.queues() for one in client.contenders(name)}


#: For each workload, what its history must have in it to mean something.
MEANS_SOMETHING: dict[str, Callable[[History], bool]] = {
    "register": lambda history: adds(history) > 40,
    "modes": lambda history: (
        adds(history) >= 20 and {one.claim for one in history.granted} == set(Mode)
    ),
    "permits": lambda history: (
        {one.claim for one in history.granted} >= {Permit(1), Permit(2), Permit(3)}
    ),
    "queue": lambda history: failures(history) >= {"busy", "AcquireTimeout", "CancelledError"},
    "guarded": lambda history: adds(history) > 40,
}


#: Every workload on two backends; `tests.faults.test_runs` has the others, with faults.
CALM_RUNS = [
    pytest.param(workload, *backend.values, marks=backend.marks)
    for backend, workloads in (
        (pytest.param("local"), WORKLOADS.keys() - {"guarded"}),
        (ETCD, {"register", "permits", "guarded"}),
        (ZOOKEEPER, {"modes", "queue", "guarded"}),
    )
    for workload in sorted(workloads)
]


@pytest.mark.parametrize(("workload", "backend"), CALM_RUNS)
def test_a_calm_run_is_right_and_means_something(
    workload: str, backend: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of(backend), workload) as stage:
        stage.hire(1, 2)
        eventually(
            lambda: (
                len(stage.history().granted) > 40 and MEANS_SOMETHING[workload](stage.history())
            ),
            within=60,
        )
        stage.drain()
        tickets = live(stage.history())
        assert tickets
        assert {lock for lock, _ in tickets} <= {"own-c1", "own-c2"}
        # Nothing else is left, and a release has returned when it is done.
        assert in_service(stage.url) == tickets
        history = stage.end()
    verdict = judge(history)
    assert verdict.holds, verdict
    assert "linearizability" in verdict.violations
    assert live(history) == tickets
    assert {count.process for count in history.counts} == {"c1", "c2"}


def test_who_is_cancelled_says_so_before_and_is_never_granted(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of("local"), "queue") as stage:
        stage.hire(1)
        eventually(lambda: sum(bool(one.withdrawn) for one in attempts(stage)) > 50)
        stage.drain()
        history = stage.end()
    for one in history.attempts.values():
        cancelled = one.failed is not None and one.failed.error == "CancelledError"
        assert cancelled == (one.withdrawn is not None)
    assert judge(history).holds


@pytest.mark.parametrize("backend", [ETCD, ZOOKEEPER])
def test_who_stood_still_for_too_long_offers_too_late_and_is_told(
    backend: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of(backend), "register") as stage:
        stage.hire(1, 2)
        stood = 0

        def refused() -> bool:
            """Whether c1 was refused anything, after it stood still until it was overtaken."""
            nonlocal stood
            stood += 1
            with stage.fault(f"pause{stood}", Reach.PAUSED, "c1"):
                stage.clients["c1"].signal(signal.SIGSTOP)
                since = stage.history().end
                # Everywhere: then whatever it held has passed on.
                eventually(lambda: len(served(stage.history(), since, "c2")) == LOCKS, within=60)
                stage.clients["c1"].signal(signal.SIGCONT)
            back = stage.history().end
            eventually(lambda: served(stage.history(), back, "c1"))
            return any(
                one.refused
                for resource in stage.history().resources.values()
                for one in resource.operations
            )

        eventually(refused, within=90)
        stage.drain()
        history = stage.end()
    verdict = judge(history)
    assert verdict.holds, verdict
    lost = [one for one in history.granted if one.lost]
    assert {one.process for one in lost} == {"c1"}
    for one in lost:
        assert one.lost is not None
        assert one.lost.deadline is not None
        assert one.granted is not None
        assert one.granted.at < one.lost.deadline <= one.lost.at


def test_who_is_killed_leaves_a_history_that_can_be_judged(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of("local"), "register") as stage:
        stage.hire(1, 2)
        eventually(lambda: adds(stage.history(), "c1") > 10)
        with stage.fault("kill", Reach.KILLED, "c1"):
            stage.clients.pop("c1").kill()
        stage.hire(3)
        eventually(lambda: adds(stage.history(), "c3") > 10)
        stage.drain()
        history = stage.end()
    verdict = judge(history)
    assert verdict.holds, verdict
    assert any(one.killed and one.granted for one in history.attempts.values())


def test_a_client_that_is_told_to_stop_amid_its_work_stops(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of("local"), "queue") as stage:
        stage.hire(1)
        eventually(lambda: len(stage.history().granted) > 10)
        stage.clients["c1"].finish(within=30)
        assert in_service(stage.url) == set()


def test_an_error_that_nobody_expected_ends_a_client_with_a_traceback(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    with Stage(tmp_path, url_of("local"), "register") as stage:
        stage.hire(1)
        stage.resource.kill()
        with pytest.raises(ProcessFailed, match=r"(?s)Traceback.*Error"):
            stage.clients["c1"].expect("anything", within=30)
        with pytest.raises(ProcessFailed, match="status 1"):
            stage.clients["c1"].finish(within=30)


def attempts(stage: Stage) -> list[Attempt]:
    return list(stage.history().attempts.values())


def served(history: History, since: int, name: str) -> set[str]:
    """Where the client called ``name`` was granted a lock and did something, ``since`` then."""
    return {
        resource.name
        for resource in history.resources.values()
        for one in resource.operations
        if one.accepted and one.offered.process == name
        for attempt in [history.attempts[one.offered.attempt]]
        if attempt.granted and attempt.granted.at > since
    }

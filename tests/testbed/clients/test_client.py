"""Client processes: their histories are whole and right, and mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from coordlock_faults.bounds import DEFAULT_BOUNDS
from coordlock_faults.events import (
    Act,
    FaultBegan,
    FaultHealed,
    Kind,
    Raised,
    Reach,
    ReleaseFailed,
)
from coordlock_faults.history import History
from coordlock_faults.journal import read
from coordlock_faults.verdict import judge

import coordlock
from coordlock.model.claim import Mode, Permit
from coordlock.testing.waiting import eventually
from testbed.clients.workloads import WORKLOADS
from testbed.servers.endpoint import Endpoint
from testbed.soak.crew import ProcessFailed
from testbed.soak.parties import LOCKS, Parties, at_work
from testbed.soak.plan import Plan
from testbed.systems.subject import Subject
from testbed.systems.undisturbed import Undisturbed

ETCD = pytest.param("etcd", marks=pytest.mark.etcd)
ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.zookeeper)


@pytest.fixture
def subject_of(
    request: pytest.FixtureRequest, root: str, tmp_path: Path
) -> Callable[[str], Subject]:
    def subject_of(backend: str) -> Subject:
        if backend == "local":
            return Undisturbed(backend, Endpoint(backend, (str(tmp_path / "state"),)).url)
        url_for = request.getfixturevalue(backend).url_for
        return Undisturbed(backend, lambda run, **options: url_for(root + run, **options))

    return subject_of


@contextmanager
def fault(parties: Parties, name: str, reach: Reach, *targets: str) -> Iterator[None]:
    """The test does something to ``targets`` in the block."""
    parties.runner.log(FaultBegan, name, name, reach, targets)
    yield
    parties.runner.log(FaultHealed, name)


def history_of(parties: Parties) -> History:
    """What happened so far."""
    return read(sorted(parties.directory.glob("*.jsonl")))


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


def granted_in_one_request(history: History) -> int:
    """Of the requests that granted several locks, the largest: etcd gives them all one token."""
    return max(Counter(one.token for one in history.granted).values(), default=0)


def sizes_of_sets(history: History) -> set[int]:
    """How many locks were granted together."""
    return set(Counter(one.invoked.together for one in history.granted).values())


def visited(history: History) -> bool:
    """Whether clients were closed that held, and others that waited."""
    held = (isinstance(one.release_answer, ReleaseFailed) for one in history.granted)
    return any(held) and "ClientClosed" in failures(history)


def answered(history: History) -> int:
    """How many grants there were, and other calls that have returned."""
    return len(history.granted) + sum(one.returned is not None for one in history.calls.values())


def shown(history: History) -> int:
    """How many states observers were shown."""
    return sum(len(one.shown) for one in history.called(Act.OBSERVE))


def errors(history: History) -> set[str]:
    """What calls other than acquires have raised."""
    answers = (one.answer for one in history.calls.values())
    return {answer.error for answer in answers if isinstance(answer, Raised)}


def told_in_the_end(history: History) -> bool:
    """Whether there was something to be told in the end, and observers to tell it to."""
    assert history.quiesced is not None
    end = history.quiesced.at
    last = [one for one in history.called(Act.OBSERVE) if one.answer and one.answer.at > end]
    return len(last) > 1 and any(one.values for one in history.presents.values())


def live(history: History) -> set[tuple[str, int | None]]:
    """The live tickets: their locks and tokens."""
    return {(one.lock, one.token) for one in history.granted if one.end is None}


def in_service(url: str) -> set[tuple[str, int | None]]:
    with coordlock.connect(url) as client:
        return {
            (name, one.token)
            for name in client.admin.names()
            for one in client.admin.contenders(name)
        }


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
    "crowd": lambda history: (
        granted_in_one_request(history) > 1
        and failures(history) >= {"busy", "AcquireTimeout", "CancelledError"}
    ),
    "multi": lambda history: {1, 2, 3} <= sizes_of_sets(history),
    "tree": lambda history: (
        {1, 2, 3} <= sizes_of_sets(history)
        and {one.claim for one in history.granted} >= {Mode.CR, Mode.CW, Mode.PR, Mode.EX}
    ),
    "deadlock": lambda history: "DeadlockDetected" in failures(history),
    "convert": lambda history: adds(history) > 20,
    "elect": lambda history: shown(history) > 20,
    "gather": lambda history: shown(history) > 20,
    "values": lambda history: shown(history) > 20 and "VersionMismatch" in errors(history),
    "work": lambda history: (
        sum(one.returned is not None for one in history.called(Act.DONE)) > 20
        and any(one.returned for one in history.called(Act.NACK))
        and failures(history) >= {"WorkQueueEmpty", "CancelledError"}
    ),
}


#: For sessions of 2 s on a busy machine.
PATIENT = replace(DEFAULT_BOUNDS, signal=5_000_000_000)
#: Every workload on two backends; `tests.faults.test_runs` has the others, with faults.
CALM_RUNS = [
    pytest.param(workload, *backend.values, marks=backend.marks)
    for backend, workloads in (
        (pytest.param("local"), WORKLOADS.keys() - {"crowd"}),
        (ETCD, {"register", "permits", "guarded", "crowd"}),
        (ZOOKEEPER, {"modes", "queue", "guarded"}),
    )
    for workload in sorted(workloads)
]


@pytest.mark.long
@pytest.mark.parametrize(("workload", "backend"), CALM_RUNS)
def test_a_calm_run_is_right_and_means_something(
    workload: str, backend: str, subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_of(backend)
    # One of two, where clients can be given.
    given = 0.0 if backend == "local" else 0.6
    # So that sessions live, whatever stands still for a moment.
    plan = Plan(workload, 1, clients=2, given=given, ttl=30.0)
    assert [plan.gives(number) for number in (1, 2)] == [given > 0, False]
    with at_work(subject, plan, tmp_path / "run") as parties:
        eventually(
            lambda: (
                answered(history_of(parties)) > 40
                and MEANS_SOMETHING[workload](history_of(parties))
                and (not given or visited(history_of(parties)))
            ),
            within=60,
        )
        parties.drain(within=60)
        tickets = live(history_of(parties))
        assert tickets
        observed = {f"lock{number}" for number in range(LOCKS) if WORKLOADS[workload].observes}
        assert {lock for lock, _ in tickets} <= {"own-c1", "own-c2", *observed}
        # Nothing else is left, and a release has returned when it is done.
        assert in_service(subject.url(parties.root)) == tickets
        parties.end()
    history = history_of(parties)
    verdict = judge(history)
    assert verdict.holds, verdict
    assert live(history) == tickets
    assert told_in_the_end(history) == WORKLOADS[workload].observes
    assert {count.process for count in history.counts} == {"c1", "c2"}


def test_who_is_cancelled_says_so_before_and_is_never_granted(
    subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    with at_work(subject_of("local"), Plan("queue", 1, clients=1), tmp_path / "run") as parties:
        eventually(lambda: len(withdrawn(history_of(parties))) > 50)
        parties.drain(within=60)
        parties.end()
    history = history_of(parties)
    cancelled = {
        one.name
        for one in history.attempts.values()
        if one.failed is not None and one.failed.error == "CancelledError"
    }
    assert cancelled == withdrawn(history)
    assert judge(history).holds


@pytest.mark.parametrize("backend", [ETCD, ZOOKEEPER])
def test_who_stood_still_for_too_long_offers_too_late_and_is_told(
    backend: str, subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_of(backend)
    with at_work(subject, Plan("register", 1, clients=2), tmp_path / "run") as parties:
        stood = 0

        def refused() -> bool:
            """Whether c1 was refused anything, after it stood still until it was overtaken."""
            nonlocal stood
            stood += 1
            with fault(parties, f"pause{stood}", Reach.PAUSED, "c1"):
                parties.crew.pause("c1")
                since = history_of(parties).end
                # Everywhere: then whatever it held has passed on.
                eventually(
                    lambda: len(served(history_of(parties), since, "c2")) == LOCKS, within=60
                )
                parties.crew.resume("c1")
            back = history_of(parties).end
            eventually(lambda: served(history_of(parties), back, "c1"))
            return any(
                one.refused
                for resource in history_of(parties).resources.values()
                for one in resource.operations
            )

        eventually(refused, within=90)
        parties.drain(within=60)
        parties.end()
    history = history_of(parties)
    verdict = judge(history, PATIENT)
    assert verdict.holds, verdict
    # On a busy machine c2 may lose some, too.
    lost = [one for one in history.granted if one.lost and one.process == "c1"]
    assert lost
    for one in lost:
        assert one.lost is not None
        assert one.lost.deadline is not None
        assert one.granted is not None
        assert one.granted.at < one.lost.deadline <= one.lost.at


def test_who_is_killed_leaves_a_history_that_can_be_judged(
    subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    with at_work(subject_of("local"), Plan("register", 1, clients=2), tmp_path / "run") as parties:
        eventually(lambda: adds(history_of(parties), "c1") > 10)
        with fault(parties, "kill", Reach.KILLED, "c1"):
            parties.crew.kill("c1")
        parties.crew.spawn()
        eventually(lambda: adds(history_of(parties), "c3") > 10)
        parties.drain(within=60)
        parties.end()
    history = history_of(parties)
    verdict = judge(history)
    assert verdict.holds, verdict
    assert any(one.killed and one.granted for one in history.attempts.values())


def test_clients_that_are_told_to_stop_amid_their_work_stop(
    subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_of("local")
    with at_work(subject, Plan("queue", 1, clients=1), tmp_path / "run") as parties:
        eventually(lambda: len(history_of(parties).granted) > 10)
        parties.crew.finish()
        assert in_service(subject.url(parties.root)) == set()


def test_an_error_that_nobody_expected_ends_a_client_with_a_traceback(
    subject_of: Callable[[str], Subject], tmp_path: Path
) -> None:
    with at_work(subject_of("local"), Plan("register", 1, clients=1), tmp_path / "run") as parties:
        parties.resource.kill()
        with pytest.raises(ProcessFailed, match=r"(?s)with status 1\n.*Traceback.*Error"):
            eventually(parties.crew.check)


def withdrawn(history: History) -> set[str]:
    """The attempts that were cancelled."""
    return {one.name for one in history.attempts.values() if one.withdrawn}


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

"""A lock that nobody holds refuses nobody for longer than a quarter of a second."""

from __future__ import annotations

import pytest

from coordlock.kernel import acquisition
from coordlock.model.claim import AnyClaim, Mode, Permit
from tests.simulation.polling import Polling, TwoSteps
from tests.simulation.world import Network

#: Seconds of the simulated time.
RUN = 2.0

LOCK: list[dict[str, AnyClaim]] = [{"q": Mode.EX}]
READ: dict[str, AnyClaim] = {"q": Mode.PR}
READERS = [READ, READ, READ, *LOCK]
PERMITS: list[dict[str, AnyClaim]] = [{"q": Permit(2)}]
SEVERAL: list[dict[str, AnyClaim]] = [
    {"a": Mode.EX, "b": Mode.EX},
    {"b": Mode.EX, "c": Mode.EX},
    {"c": Mode.PR},
    {"a": Mode.EX},
]

services = pytest.mark.parametrize("service", [Network, TwoSteps])


@services
@pytest.mark.parametrize(("many", "pause"), [(4, 0.0), (20, 0.01)])
@pytest.mark.parametrize("kind", [LOCK, READERS, PERMITS, SEVERAL], ids=lambda kind: str(kind[0]))
def test_a_lock_that_nobody_holds_refuses_nobody_for_long(
    kind: list[dict[str, AnyClaim]], many: int, pause: float, service: type[Network]
) -> None:
    polling = Polling((kind * many)[:many], service, pause=pause)
    polling.world.advance(RUN)
    polling.check()
    assert polling.grants > 0.5 * RUN / (polling.hold + pause + 0.08)  # two slow answers


def test_sixty_pollers_leave_no_lock_free() -> None:
    polling = Polling(LOCK * 60, TwoSteps)
    polling.world.advance(1.0)
    polling.check()
    assert polling.grants >= 5


@services
def test_pollers_overtake_nobody_who_waits(service: type[Network]) -> None:
    polling = Polling(LOCK * 10, service)
    polling.world.advance(1.0)
    waiters = [polling.world.party(network=service) for _ in range(5)]
    for party in waiters:
        party.network.faults.latency = lambda: 0.01
        polling.wait(party, LOCK[0])
    polling.world.advance(0.02)
    granted = polling.grants
    polling.world.advance(0.5)
    # Who held the lock leaves it to those who wait, one after the other.
    assert polling.grants - granted >= 5
    polling.check()


def test_a_poller_that_enqueues_what_is_refused_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acquisition, "_looks_first", lambda *_: False)
    polling = Polling(LOCK * 20, TwoSteps)
    polling.world.advance(RUN)
    with pytest.raises(AssertionError, match="by nobody"):
        polling.check()


def test_a_poller_that_forgets_its_refusals_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "note_refusals", lambda *_: None)
    polling = Polling(LOCK * 20, TwoSteps)
    polling.world.advance(RUN)
    with pytest.raises(AssertionError, match="by nobody"):
        polling.check()

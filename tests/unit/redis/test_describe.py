"""What `doctor` concludes from what servers say: of states in which no real one can be put."""

from __future__ import annotations

from typing import NoReturn

import pytest
from coordlock_redis.describe import Clock, Question, describe, findings
from coordlock_redis.servers import Servers

from coordlock.runtime.clock import SYSTEM_CLOCK

FIELDS = {"aof_enabled": "1", "connected_slaves": "1"}
QUESTION = Question(
    Servers([("h", 1)], b"key", 5.0, SYSTEM_CLOCK), "redis", ttl=15.0, delay=15.0, replicas=0
)


def warned(fields: dict[str, str], *clocks: Clock) -> str:
    found = findings({**FIELDS, **fields}, QUESTION, clocks)
    return "\n".join(text for is_well, text in found if not is_well)


@pytest.mark.parametrize(("ahead", "endangers"), [(-20.0, True), (-10.0, False), (60.0, False)])
def test_a_clock_that_is_behind_for_longer_than_grants_pause_endangers_tokens(
    ahead: float, endangers: bool
) -> None:
    text = warned({}, Clock("h:2", ahead, 0.01))
    assert ("the clock of the replica h:2 is 20.0 s behind" in text) is endangers


def test_a_file_that_cannot_be_written_is_told() -> None:
    assert "file failed" in warned({"aof_last_write_status": "err"})


def test_what_nobody_foresaw_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(servers: Servers) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(Servers, "connect", connect)
    assert isinstance(describe(QUESTION, None).exception(10), ZeroDivisionError)

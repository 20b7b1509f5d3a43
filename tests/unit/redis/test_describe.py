"""What `doctor` concludes from what servers say: of states in which no real one can be put."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest
from coordlock_redis.describe import Question, describe, findings
from coordlock_redis.servers import Servers

from coordlock.runtime.clock import SYSTEM_CLOCK

FIELDS = {"aof_enabled": "1", "connected_slaves": "1"}
QUESTION = Question(
    Servers([("h", 1)], b"key", 5.0, SYSTEM_CLOCK, b""), "redis", delay=15.0, replicas=0
)


def warned(fields: dict[str, str]) -> str:
    found = findings({**FIELDS, **fields}, QUESTION)
    return "\n".join(text for is_well, text in found if not is_well)


def test_a_file_that_cannot_be_written_is_told() -> None:
    assert "file failed" in warned({"aof_last_write_status": "err"})


def test_replicas_that_are_missing_are_told() -> None:
    question = replace(QUESTION, replicas=2)
    warnings = [text for is_well, text in findings(FIELDS, question) if not is_well]
    assert any("nothing is granted" in text for text in warnings)


def test_what_nobody_foresaw_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(servers: Servers) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(Servers, "connect", connect)
    assert isinstance(describe(QUESTION, None).exception(60), ZeroDivisionError)

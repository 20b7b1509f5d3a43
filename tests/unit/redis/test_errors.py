"""What servers refuse is shown with what to do about it, though redis-py takes some codes off."""

from __future__ import annotations

from typing import Any

import pytest
from coordlock_redis.errors import translate
from redis.connection import Connection

from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable

connection: Any = Connection
PARSER = connection()._parser


@pytest.mark.parametrize(
    ("answer", "advice", "kind"),
    [
        ("NOAUTH Authentication required.", "give a username", AuthenticationFailed),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: f_1, on line 9.",
            "raise maxmemory",
            BackendError,
        ),
        ("MISCONF Redis is configured to save RDB snapshots, but", "see its log", BackendError),
        ("NOPERM this user has no permissions to run", "must be allowed", AuthenticationFailed),
        ("WRONGPASS invalid username-password pair", "", AuthenticationFailed),
        ("WRONGTYPE Operation against a key", "another program", BackendError),
        ("MASTERDOWN Link with MASTER is down", "", BackendUnavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "", BackendUnavailable),
        ("READONLY You can't write against a read only replica.", "", BackendUnavailable),
    ],
)
def test_a_refusal_is_shown_with_what_to_do(
    answer: str, advice: str, kind: type[BackendError]
) -> None:
    error = translate(PARSER.parse_error(answer), "host:6379")
    assert type(error) is kind
    assert advice in str(error)

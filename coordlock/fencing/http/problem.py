"""What the middleware answers instead of the application: problem details of RFC 9457. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Self

from coordlock.errors import StaleToken
from coordlock.fencing.http.header import HEADER, parse_token
from coordlock.fencing.marks import refusal

__all__ = ["INVALID", "MISSING", "Problem", "may_be_stale", "read_stale"]

_CONTENT_TYPE: Final = "application/problem+json"
# Identifiers, not addresses.
_STALE: Final = "urn:coordlock:problem:stale-token"


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer: ``status``, ``headers`` and ``body``.

    For frameworks that answer the errors of their handlers themselves: ``Problem.stale(error)`` is
    what the middleware answers to a `StaleToken`.

    Attributes:
        status: 409 to a stale token, 400 to a malformed header, 428 where it is missing.
        type: tells the problems apart, as a URI.
        title: the same for people.
        detail: what to do.
        members: further members of the body.
    """

    status: HTTPStatus
    type: str
    title: str
    detail: str
    members: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def stale(cls, error: StaleToken) -> Self:
        """The answer to a stale token. It names the resource, the token and the newest one.

        Tokens are texts of digits, because JavaScript rounds numbers beyond 2**53.
        """
        return cls(
            HTTPStatus.CONFLICT,
            _STALE,
            "The fencing token is stale",
            "The lock was lost, and another client has held it since. Acquire it again, read again "
            "what was read under it, and send the new token; this one is never accepted again.",
            {
                "resource": error.resource,
                "token": str(error.token),
                "newest": str(error.newest),
            },
        )

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The content's type and length."""
        return [("Content-Type", _CONTENT_TYPE), ("Content-Length", str(len(self.body)))]

    @property
    def body(self) -> bytes:
        """The JSON, in ASCII."""
        content = {
            "type": self.type,
            "title": self.title,
            "status": int(self.status),
            "detail": self.detail,
        }
        return json.dumps({**content, **self.members}).encode()


_SEND: Final = (
    f"Send one header {HEADER} with the token of the lock's grant, an integer from 1 to "
    "2**63 - 1, followed by '; shared' for a read lock."
)
INVALID: Final = Problem(
    HTTPStatus.BAD_REQUEST,
    "urn:coordlock:problem:invalid-token",
    "The fencing token is malformed",
    _SEND,
)
MISSING: Final = Problem(
    HTTPStatus.PRECONDITION_REQUIRED,
    "urn:coordlock:problem:token-required",
    "A fencing token is required",
    f"Acquire the lock that protects this resource. {_SEND}",
)


def may_be_stale(status: int, content_type: str | None) -> bool:
    """Whether an answer looks as if it was made by `Problem.stale`."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return status == HTTPStatus.CONFLICT and media_type == _CONTENT_TYPE


def read_stale(body: bytes) -> StaleToken | None:
    """The error that `Problem.stale` made this body of, or None for any other body."""
    try:
        match json.loads(body):
            case {
                "type": str(kind),
                "resource": str(resource),
                "token": str(token),
                "newest": str(newest),
            } if kind == _STALE:
                return refusal(resource, parse_token(token).value, parse_token(newest).value)
    except (ValueError, RecursionError):
        pass  # no JSON, or no tokens
    return None

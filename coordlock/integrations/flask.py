"""Locks for the requests of Flask, and for its commands.

::

    client = coordlock.Client()

    @app.post("/accounts/<name>")
    def deposit(name: str) -> str:
        hold(client.lock(f"account/{name}", timeout=5))
        ...
        db.session.commit()
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack
from http import HTTPStatus
from typing import Any, Final, TypeVar

from flask import Response, after_this_request, g, has_request_context, make_response
from flask.signals import appcontext_tearing_down
from werkzeug.exceptions import HTTPException, Locked, ServiceUnavailable

from coordlock import BackendUnavailable, CoordlockError, LockLost, WaitError
from coordlock.integrations.checked import Checked
from coordlock.integrations.statuses import refusal_of

__all__ = ["hold"]

log: Final = logging.getLogger(__name__)


G = TypeVar("G", bound=Checked)


class _Held(ExitStack):
    """What a context holds. If a function that tears it down fails, this releases all the same."""

    def __del__(self) -> None:
        self.close()


def hold(lock: AbstractContextManager[G]) -> G:
    """Acquire ``lock``, of any kind, and hold it until the application context ends; the grant.

    That is after the view and after all functions that tear the request or the context down, and
    before a stream. In a request it raises what Flask answers with 423 if the lock was not granted
    in time, and with 503 if the service of locks does not answer, both with ``Retry-After``. No
    response below 400 leaves after a loss: it becomes a 503. In a command it raises what
    ``acquire`` raises.

    Raises TypeError for a lock of an `AsyncClient`, and RuntimeError outside of a context.
    """
    if not hasattr(lock, "__enter__"):
        raise TypeError(f"{lock!r} needs a loop of asyncio: make it with coordlock.Client()")
    if "_coordlock" not in g:
        g._coordlock = _Held()
    if not has_request_context():
        return _entered(lock)
    try:
        grant = _entered(lock)
    except (WaitError, BackendUnavailable) as error:
        raise _answer(error) from error

    @after_this_request
    def check(response: Response) -> Response:
        try:
            if response.status_code < 400:
                grant.check()
        except LockLost as error:
            return make_response(_answer(error))
        return response

    return grant


class _Busy(Locked, ServiceUnavailable):
    """423 with ``Retry-After``, which werkzeug has for 503 alone."""


def _answer(error: CoordlockError) -> HTTPException:
    """The answer to a request that does not hold its lock."""
    refusal = refusal_of(error)
    assert refusal is not None
    log.warning("%d: %s", refusal.status, error)
    kind = _Busy if refusal.status == HTTPStatus.LOCKED else ServiceUnavailable
    return kind(refusal.detail, retry_after=refusal.retry_after)


def _entered(lock: AbstractContextManager[G]) -> G:
    grant: G = g._coordlock.enter_context(lock)
    return grant


@appcontext_tearing_down.connect
def _release(sender: object, exc: BaseException | None = None, **_: Any) -> None:
    """Release what the context holds: Flask sends this after all functions that tear down."""
    held: _Held | None = g.pop("_coordlock", None)
    if held is not None:
        kind = None if exc is None else type(exc)
        held.__exit__(kind, exc, None if exc is None else exc.__traceback__)

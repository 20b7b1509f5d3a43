"""The session for data, on sessions that reach no server."""

from __future__ import annotations

from typing import Any

import pytest
from coordlock_zookeeper.data_session import DataSession

from coordlock.errors import BackendUnavailable
from coordlock.runtime.driver import Steps, awaited
from coordlock.runtime.promise import Promise, resolved


class Session:
    """Opens at once, unless it is ``struck``."""

    def __init__(self, *, struck: bool) -> None:
        self.opened: Promise[None] = Promise()
        self.has_ended = False
        self._struck = struck

    def open(self) -> None:
        if self._struck:
            raise KeyboardInterrupt
        self.opened.resolve(None)

    def end(self, error: Exception) -> None:
        self.has_ended = True
        self.opened.fail(error)

    def submit(self, steps: Any) -> Promise[int]:
        return resolved(1)


def test_ctrl_c_while_a_session_is_opened_leaves_none_that_never_opens() -> None:
    made = [Session(struck=True), Session(struck=False)]
    session = DataSession(lambda *_: made.pop(0))  # type: ignore[arg-type]

    def steps(_: object) -> Steps[int]:
        return awaited(resolved(1))

    with pytest.raises(KeyboardInterrupt):
        session.submit(steps)
    assert session.submit(steps).result(0) == 1
    session.close()
    assert isinstance(session.submit(steps).exception(0), BackendUnavailable)

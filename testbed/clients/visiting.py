"""Visits: more clients share what the application gave, and are closed amid their work.

It outlives them, and on ZooKeeper the session does. So what they leave in a queue stays there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Final

import coordlock
from coordlock.model.claim import Mode
from testbed.clients.attempt_log import THREADS
from testbed.clients.given import Given
from testbed.clients.scribe import Scribe
from testbed.clients.worker import EXPECTED

__all__ = ["visit_now_and_then"]

#: Seconds from one visit to the next, and how long one lasts.
_PAUSES: Final = 0.2, 3.0
_STAYS: Final = 0.0, 1.0
#: What the visitors of all processes ask for. Some hold, others wait.
_LOCKS: Final = ("visited0", "visited0", "visited1")


def visit_now_and_then(
    url: str,
    given: Given,
    scribe: Scribe,
    draining: threading.Event,
    dice: random.Random,
    come: Callable[[coordlock.Client], object],
) -> None:
    """Come and go until nothing new is to be begun; ``come`` is told of each client."""
    while not draining.wait(dice.uniform(*_PAUSES)):
        try:
            client = coordlock.connect(url, client=given.client)
        except EXPECTED:
            continue
        come(client)
        visitors = [_Visitor(client, scribe, lock) for lock in _LOCKS]
        draining.wait(dice.uniform(*_STAYS))
        for visitor in visitors:
            visitor.leave()
        client.close()
        for visitor in visitors:
            visitor.gone()


class _Visitor:
    """A thread that asks for a lock, and holds it until its client is closed."""

    def __init__(self, client: coordlock.Client, scribe: Scribe, lock: str) -> None:
        self._client = client
        self._attempt = scribe.attempt(lock, Mode.EX)
        # Whoever is granted when the client may be closed has perhaps lost it already.
        self._gate = threading.Lock()
        self._holds = self._leaving = False
        self._grant: coordlock.Grant | None = None
        self._thread = threading.Thread(target=self._ask, name=f"{THREADS}-visitor", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Its client is going to be closed."""
        with self._gate:
            self._leaving = True
            if self._holds:
                self._attempt.releasing(self._client.settings.request_timeout)

    def gone(self) -> None:
        """Its client was closed."""
        self._thread.join()
        if self._holds:
            self._attempt.release_failed(coordlock.errors.ClientClosed())

    def _ask(self) -> None:
        try:
            grant = self._client.lock(self._attempt.lock).acquire()
        except (coordlock.errors.ClientClosed, *EXPECTED) as error:
            self._attempt.failed(type(error).__name__, str(error))
            return
        self._grant = grant  # its client may not be closed yet
        with self._gate:
            if self._leaving:
                self._attempt.failed("ClientClosed", "granted while it was closed")
            else:
                self._attempt.granted(grant)
                self._holds = True

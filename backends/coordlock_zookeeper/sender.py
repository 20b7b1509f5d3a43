"""What keeps an application's client from blocking whoever asks it."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

from coordlock.errands import Errands

__all__ = ["Sender"]


class Sender:
    """Stands in for a `KazooClient`, and makes its requests in a thread of their own.

    kazoo wakes its I/O thread with a byte per request in a socket pair. The buffer holds 278 of
    them on Linux; whoever comes then waits until that thread has passed some on, or for ever when
    the connection has gone meanwhile. coordlock asks from event loops, and under deadlines. With a
    client of our own, `Wakeups` sees to it.

    The client's methods run with this in its place, so that they find `_call` here.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._errands = Errands("coordlock-zookeeper-sender")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        is_own = getattr(value, "__self__", None) is self._client
        return MethodType(value.__func__, self) if is_own else value

    def _call(self, request: Any, answer: Any) -> None:
        # kazoo returns False for some errors, but puts them into ``answer`` too.
        self._errands.run(partial(self._pass_on, request, answer))

    def _pass_on(self, request: Any, answer: Any) -> None:
        try:
            self._client._call(request, answer)
        except Exception as error:  # of a subclass
            answer.set_exception(error)

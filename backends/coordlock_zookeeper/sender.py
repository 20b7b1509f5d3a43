"""What keeps an application's client from blocking whoever asks it."""

from __future__ import annotations

from functools import partial
from typing import Any

from coordlock.runtime.errands import Errands

__all__ = ["unblocked"]


def unblocked(client: Any) -> Any:
    """The same `KazooClient`, but its requests are made by a thread of their own.

    kazoo wakes its I/O thread with a byte per request in a socket pair. The buffer holds 278 of
    them on Linux; whoever comes then waits until that thread has passed some on, or for ever when
    the connection has gone meanwhile. coordlock asks from event loops, and under deadlines. With a
    client of our own, `Wakeups` sees to it.

    What is returned shares the state of ``client``, which itself goes on as before.
    """
    errands = Errands("coordlock-zookeeper-sender")

    def pass_on(request: Any, answer: Any) -> None:
        try:
            client._call(request, answer)
        except Exception as error:  # of a subclass
            answer.set_exception(error)

    class Unblocked(type(client)):  # type: ignore[misc]
        def _call(self, request: Any, answer: Any) -> None:
            # kazoo returns False for some errors, but puts them into ``answer`` too.
            errands.run(partial(pass_on, request, answer))

        def __del__(self) -> None:
            """Nothing: a subclass may stop the client here."""

    twin = object.__new__(Unblocked)
    twin.__dict__ = client.__dict__  # the same, not a copy
    return twin

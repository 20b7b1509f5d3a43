"""The listeners of one client, which are told of its events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from coordlock.runtime.clock import Timers, soon

if TYPE_CHECKING:
    # Most clients have no listener, and the kernel makes events only for some.
    from coordlock.kernel.events import Event

__all__ = ["Listeners"]

Listener = Callable[["Event"], object]


class Listeners:
    """Whom one client tells of its events.

    A listener is called in the thread for callbacks, one event after another, and its errors are
    logged. What is left at the client's close, it is called with in the closing thread. Contenders'
    events are made only where ``exist`` is true, and otherwise cost nothing.
    """

    def __init__(self, callbacks: Timers) -> None:
        self._callbacks: Final = callbacks
        self._all: tuple[Listener, ...] = ()
        self.exist = False

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell ``listener`` of all events from now on; what is returned ends that.

        Contenders that entered while there was no listener are not followed: of those it hears
        nothing.
        """
        mine = partial(listener)  # equal to no other, whichever listeners there are
        self._set((*self._all, mine))
        return lambda: self._set(tuple(one for one in self._all if one is not mine))

    def tell(self, event: Event) -> None:
        """Tell all listeners of ``event``, soon. Never blocks."""
        for listener in self._all:
            soon(self._callbacks, partial(listener, event))

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        self._all = listeners
        self.exist = bool(listeners)

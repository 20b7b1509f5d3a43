"""Observers of a run, and readings of the same: what they are told is written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock_faults.events import Act

from coordlock.errors import BackendError
from testbed.clients.call_log import CallLog
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker

__all__ = ["State", "follow", "read"]

#: The numbers of a state, as `Act` has them.
State = Callable[[Any], tuple[int, ...]]

#: Seconds from one look whether to go on to the next.
_LOOK: Final = 1.0
#: For how many seconds one observer is used, unless it is the last one.
_LASTS: Final = 0.5, 15.0
#: How often the same is read, too.
_READS: Final = 0.2
#: Seconds to be shown the present in the end, less than a run allows for.
_PATIENCE: Final = 25.0


def follow(
    worker: Worker, of: str, observe: Callable[[], Any], ask: Callable[[], Any], state: State
) -> Steps[None]:
    """Observe again and again; the last time until that shows what ``ask`` is told."""
    while not worker.parting.is_set():
        observer = observe()
        yield from _observe(worker, of, observer, ask, state)
        observer.close()


def _observe(
    worker: Worker, of: str, observer: Any, ask: Callable[[], Any], state: State
) -> Steps[None]:
    log = worker.scribe.call(Act.OBSERVE, of)
    shown: tuple[int, ...] | None = None
    ends = time.monotonic() + worker.dice.uniform(*_LASTS)
    # Who is there when nothing new is begun is so to the end.
    while worker.draining.is_set() or time.monotonic() < ends:
        try:
            shown = state((yield partial(observer.next, _LOOK)))
        except TimeoutError:
            pass
        else:
            log.shown(shown)
        if worker.parting.is_set():
            break
        if worker.dice.random() < _READS:
            yield from read(worker, of, ask, state)
    else:
        log.returned()
        return
    yield from _catch_up(log, shown, observer, ask, state)


def _catch_up(
    log: CallLog,
    shown: tuple[int, ...] | None,
    observer: Any,
    ask: Callable[[], Any],
    state: State,
) -> Steps[None]:
    """Go on until the observer has shown what ``ask`` is told, or has had its time."""
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends:
        with suppress(BackendError):
            if shown == state((yield ask)):
                break
        with suppress(TimeoutError):
            shown = state((yield partial(observer.next, _LOOK)))
            log.shown(shown)
    log.returned()


def read(worker: Worker, of: str, ask: Callable[[], Any], state: State) -> Steps[Any]:
    """What ``ask`` is told; None where it fails."""
    log = worker.scribe.call(Act.READ, of)
    try:
        found = yield ask
    except BackendError as error:
        log.raised(type(error).__name__, str(error))
        return None
    log.returned(*state(found))
    return found

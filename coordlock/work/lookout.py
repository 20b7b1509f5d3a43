"""Waiting until there may be something to take, without asking again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from copy import copy
from typing import Final

from coordlock.backend import Listing, Observation, Queue
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Timer
from coordlock.runtime.condition import Condition
from coordlock.runtime.driver import Steps
from coordlock.work.desk import Desk
from coordlock.work.layout import Layout
from coordlock.work.records import Claim, State

__all__ = ["news"]

#: The longest wait in seconds for something that is due: the clock of the day may be set meanwhile.
_LONGEST: Final = 30.0


def news(
    desk: Desk,
    turn: Ticket,
    known: State,
    claims: Collection[Claim],
    due: float | None,
) -> Steps[None]:
    """Wait until the state is not the ``known`` one, one of ``claims`` is void, or ``due`` is past.

    ``due`` is in seconds since 1970. It fails when ``turn`` is lost.
    """
    layout, changed = desk.layout, Condition()
    stops: list[Callable[[], None]] = []
    try:
        following = desk.service.follow(layout.state, changed.notify)
        stops.append(following.cancel)
        observing: Observation[Snapshot] | None = None
        if claims:
            observing = desk.service.follow(Queue(layout.workers), changed.notify)
            stops.append(observing.cancel)
        while True:
            notified = changed.notified
            if due is not None:
                if time.time() >= due:
                    return
                stops.append(_alarm(desk.engine, due, changed).cancel)
            if _has_changed(layout, following, known) or _is_void(observing, claims):
                return
            for observation in (following, observing):
                if observation is not None and observation.view.ended is not None:
                    raise copy(observation.view.ended)
            yield turn.unless_lost(notified)
    finally:
        for stop in stops:
            stop()


def _alarm(engine: Engine, due: float, changed: Condition) -> Timer:
    seconds = min(due - time.time(), _LONGEST)
    return engine.timers.call_at(engine.clock.now() + seconds, changed.notify)


def _has_changed(layout: Layout, following: Observation[Listing], known: State) -> bool:
    listing = following.view.state
    if listing is None:
        return False
    versions = State.read(layout, listing).versions
    # None of them ever falls: one that is smaller is of a state before.
    return any(new > old for new, old in zip(versions, known.versions, strict=True))


def _is_void(observing: Observation[Snapshot] | None, claims: Collection[Claim]) -> bool:
    snapshot = None if observing is None else observing.view.state
    return snapshot is not None and not all(one.stands_in(snapshot) for one in claims)

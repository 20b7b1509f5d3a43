"""Waiting until a state of the service is as it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.kernel.engine import Engine
from coordlock.recipes.shared.observer import BaseObserver, Begin
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps

__all__ = ["waiting_until"]

S = TypeVar("S")


def waiting_until(
    engine: Engine,
    begin: Begin,
    is_wanted: Callable[[S], bool],
    timeout: float | None,
    in_vain: Callable[[S, float], CoordlockError],
) -> Steps[None]:
    """Wait until the newest state of what ``begin`` observes is as ``is_wanted`` says.

    ``timeout`` is in seconds; None waits for ever, and 0 looks once, for up to the client's
    ``request_timeout``. Raises what ``in_vain`` makes of the last state and the seconds when the
    time is up, and `BackendUnavailable` where no state has come, or changes may have been missed.
    """
    engine.check()
    if not engine.was_open:
        yield from engine.session()
    started = engine.clock.now()
    yield engine.deadline(timeout or (None if timeout is None else engine.settings.request_timeout))
    observer: BaseObserver[S] = BaseObserver(engine, begin, lambda state, _: state)
    try:
        yield from observer._advance()
        while not is_wanted(observer.state):
            if timeout == 0:
                raise in_vain(observer.state, engine.clock.now() - started)
            yield from observer._advance()
        return
    except DeadlineReached as late:
        if observer.stale_for is not None:
            silent = engine.silent(late)
            reason = f"{silent.reason}; what was waited for may have come"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
    finally:
        observer.close()
    raise in_vain(observer.state, engine.clock.now() - started)

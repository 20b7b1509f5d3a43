"""Which caller holds a lock: the task that acquires it, or the thread together with its context.

The thread alone does not tell callers apart. A thread of a pool serves one request after another,
and a request moves between threads. Pools such as anyio's, and `asyncio.to_thread`, run each call
in a copy of the request's context, and another call on that thread does not see what this one sets
there. So a thread that finds no caller of its own in the context becomes a new caller.

`concurrent.futures` copies no context. A thread of such a pool is one caller, whatever it does.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Final

from coordlock.runtime.log import Log

__all__ = ["Caller", "described", "running_loop", "this_caller", "trace_context"]

log = Log("coordlock")

#: Weak: a lock that is held does not keep the thread or task alive that acquired it.
Caller = weakref.ref[Any]


class _ThreadInContext(weakref.ref[Any]):
    """A thread in one context: another caller than the same thread in another context."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


#: The caller in this context where no task runs. Only the thread that has set it may use it.
_thread: Final[ContextVar[_ThreadInContext]] = ContextVar("coordlock_thread")


def this_caller() -> Caller:
    """The task that runs; without one, the thread that runs, in its context.

    The task counts for a lock that blocks its thread, too: no task of a loop owns another's locks.
    """
    loop = running_loop() if "asyncio" in sys.modules else None
    if loop is not None and (task := sys.modules["asyncio"].current_task(loop)) is not None:
        return weakref.ref(task)  # the same one each time
    thread = threading.current_thread()
    caller = _thread.get(None)
    if caller is None or caller() is not thread:
        caller = _ThreadInContext(thread)
        _thread.set(caller)
    return caller


def running_loop() -> Any:
    """The event loop that runs in this thread; None without one."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None  # none can run
    # Another thread may be importing it at present.
    return getattr(asyncio, "_get_running_loop", lambda: None)()


def described(holder: Caller | None, me: Caller | None) -> str:
    """Which thread or task ``holder`` is, in words for ``me``."""
    one = None if holder is None else holder()
    if one is None:
        return "by one that has ended"
    # Not by its class: gevent's threads are of another one.
    name = getattr(one, "name", None)
    kind = "task" if name is None else "thread"
    if me is not None and holder == me:
        return f"in this {kind}"
    return f"in {kind} {name or one.get_name()!r}"


def trace_context() -> dict[str, str]:
    """The headers of the span in which the caller is, such as ``traceparent``; none without one.

    Where the application uses OpenTelemetry.
    """
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        try:
            from opentelemetry import propagate

            propagate.inject(headers)
        except Exception:  # a propagator may be anybody's
            log.exception("the context of the trace could not be passed on")
    return headers

"""Whose a lock is: the task that acquires it, or the thread, as seen from its context.

A thread of a pool serves one request after another, and a request moves between threads. So a
thread alone says nothing of who holds. Pools such as anyio's, and `asyncio.to_thread`, run each
call in a copy of the request's context: what a call sets there, another call on that thread does
not see. So a thread that finds no caller of its own in the context becomes a new one.

`concurrent.futures` copies no context. All that a thread of such a pool does is one caller's.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["Caller", "described", "this_caller"]

#: Weak: a lock that is held keeps nothing of the thread or task that acquired it.
Caller = weakref.ref[Any]


class _ThreadInContext(weakref.ref[Any]):
    """A thread in one context: another caller than the same thread in another context."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


#: Who acquires in this context, where no task runs: of use to the thread that has set it alone.
_thread: Final[ContextVar[_ThreadInContext]] = ContextVar("coordlock_thread")


def this_caller() -> Caller:
    """The task that runs; else the thread that runs, in its context.

    Also for a lock that blocks its thread: tasks of one loop are no owners of each other's locks.
    """
    task = _running_task()
    if task is not None:
        return weakref.ref(task)  # the same one each time
    thread = threading.current_thread()
    caller = _thread.get(None)
    if caller is None or caller() is not thread:
        caller = _ThreadInContext(thread)
        _thread.set(caller)
    return caller


def _running_task() -> Any:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None  # what nobody has imported runs no task
    # Another thread may be importing it at present.
    loop = getattr(asyncio, "_get_running_loop", lambda: None)()
    return None if loop is None else asyncio.current_task(loop)


def described(holder: Caller | None, me: Caller | None) -> str:
    """Where ``holder`` is, as seen by ``me``."""
    one = None if holder is None else holder()
    if one is None:
        return "by one that has ended"
    kind, name = ("thread", one.name) if isinstance(one, threading.Thread) else ("task", None)
    if me is not None and holder == me:
        return f"in this {kind}"
    return f"in {kind} {name or one.get_name()!r}"

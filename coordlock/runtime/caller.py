"""Which thread or task acquires a lock, to tell it when it waits for itself."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from coordlock.runtime.lazily import Lazily

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Lazily("asyncio")

__all__ = ["Caller", "described", "this_task", "this_thread"]

#: Weak: a lock that is held keeps nothing of the thread or task that acquired it.
Caller = weakref.ref[Any]


def this_thread() -> Caller:
    """The thread that runs."""
    return weakref.ref(threading.current_thread())


def this_task() -> Caller:
    """The task that runs."""
    return weakref.ref(asyncio.current_task() or threading.current_thread())


def described(holder: Caller | None, me: Caller | None) -> str:
    """Where ``holder`` is, as seen by ``me``."""
    one = None if holder is None else holder()
    if one is None:
        return "by one that has ended"
    kind, name = ("thread", one.name) if isinstance(one, threading.Thread) else ("task", None)
    if me is not None and one is me():
        return f"in this {kind}"
    return f"in {kind} {name or one.get_name()!r}"

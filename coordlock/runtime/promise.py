"""Promises: values to come, which I/O threads complete and no waiter can cancel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock.runtime.worker import Worker

__all__ = [
    "Condition",
    "Promise",
    "all_of",
    "call_each",
    "copied",
    "failed",
    "in_thread",
    "resolved",
    "settled",
]

log = Log("coordlock")

T = TypeVar("T")


def call_each(waiting: list[T], call: Callable[[T], object]) -> None:
    """``call`` with each of ``waiting``, taking it out; also with what is added meanwhile.

    Once, but again where that raises, or a signal handler does before it. What fails again is a
    fault, which is logged. Otherwise the error is the handler's: it goes to the program, once all
    were called.
    """
    taken: T | None = None
    try:
        while waiting:
            try:
                taken = waiting[0]  # first: a handler may raise as the next line returns
                popped = waiting.pop(0)
            except IndexError:  # another thread has taken it
                taken = None
                return
            taken = popped
            try:
                call(taken)
            except Exception:
                if not _fails(taken, call):
                    taken = None
                    raise
                log.exception("a callback failed")
            taken = None
    finally:
        try:
            if taken is not None:
                _fails(taken, call)
        finally:
            if waiting:
                call_each(waiting, call)


def _fails(taken: T, call: Callable[[T], object]) -> bool:
    """Whether ``call``, which has raised, is at fault.

    Made again it succeeds where a handler has raised, which never runs in coordlock's own threads.
    """
    with suppress(Exception):
        if not THREAD.must_not_wait:
            call(taken)
            return False
    return True


class Promise(Generic[T]):
    """A value to come. The first thread that completes it decides, and nothing cancels it.

    A waiter keeps several, so they are small: the condition of a `concurrent.futures.Future` alone
    takes a kilobyte. They are safe for threads because Python appends to a list and pops from it in
    one step: the first outcome in the list counts, and `call_each` pops each callback once.

    asyncio waits for one by `coordlock.runtime.driver.completion`.
    """

    __slots__ = ("__weakref__", "_callbacks", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        self._callbacks: list[Callable[[Promise[T]], object]] = []

    def resolve(self, value: T) -> bool:
        """Complete with ``value``; False when something else came first."""
        if is_first := not self._outcomes:  # some are completed again and again
            self._outcomes.append(outcome := (value, None))
            is_first = self._outcomes[0] is outcome
        if self._callbacks:  # also of an earlier call, which was struck before this line
            call_each(self._callbacks, self._call)
        return is_first

    def fail(self, error: BaseException) -> bool:
        """Complete with ``error``; False when something else came first."""
        if is_first := not self._outcomes:
            self._outcomes.append(outcome := (None, error))
            is_first = self._outcomes[0] is outcome
        if self._callbacks:
            call_each(self._callbacks, self._call)
        return is_first

    def follow(self, done: Promise[T]) -> None:
        """Complete with the outcome of ``done``, unless something else came first."""
        error = done.exception()
        if error is None:
            self.resolve(done.result())
        else:
            self.fail(error)

    def _call(self, callback: Callable[[Promise[T]], object]) -> None:
        callback(self)

    def add_done_callback(self, fn: Callable[[Promise[T]], object]) -> None:
        """Call ``fn`` with this promise once it is complete; at once, if it is."""
        self._callbacks.append(fn)
        if self._outcomes:
            # The thread that completes it may have popped `fn` already. One of the two calls it.
            try:
                self._callbacks.remove(fn)
            except ValueError:
                return
            call_each([fn], self._call)

    def remove_done_callback(self, fn: Callable[[Promise[T]], object]) -> None:
        """Do not call ``fn``, if that has not begun."""
        with suppress(ValueError):
            self._callbacks.remove(fn)

    def done(self) -> bool:
        """Whether it is complete."""
        return bool(self._outcomes)

    def result(self, timeout: float | None = None) -> T:
        """The value; raises the error. Raises TimeoutError after ``timeout`` seconds."""
        value: T
        value, error = (self._outcomes or self._awaited(timeout))[0]
        if error is None:
            return value
        try:
            raise error
        finally:
            del self, error  # its traceback refers to this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None. Raises TimeoutError after ``timeout`` seconds."""
        return (self._outcomes or self._awaited(timeout))[0][1]

    def _awaited(self, timeout: float | None) -> list[tuple[Any, BaseException | None]]:
        """The outcomes, of which there is one after this wait."""
        completed = threading.Event()
        self.add_done_callback(lambda _: completed.set())
        if not completed.wait(timeout):
            raise TimeoutError
        return self._outcomes

    def __repr__(self) -> str:
        if not self._outcomes:
            return "<Promise: open>"
        value, error = self._outcomes[0]
        what = repr(value) if error is None else f"failed: {error!r}"
        return f"<Promise: {what}>"


def resolved(value: T) -> Promise[T]:
    """A promise that is already kept."""
    promise: Promise[T] = Promise()
    promise._outcomes.append((value, None))  # nobody waits for it yet
    return promise


def failed(error: BaseException) -> Promise[T]:
    """A promise that is already broken."""
    promise: Promise[T] = Promise()
    promise._outcomes.append((None, error))
    return promise


def in_thread(name: str, call: Callable[[], T]) -> Promise[T]:
    """What ``call`` returns or raises, in a daemon thread of its own because it blocks."""
    promise: Promise[T] = Promise()

    def settle() -> None:
        try:
            promise.resolve(call())
        except BaseException as error:
            promise.fail(error)

    Worker(name).run(settle)
    return promise


def settled(future: Promise[T]) -> Promise[None]:
    """A promise that is kept when ``future`` is done, however it ends."""
    promise: Promise[None] = Promise()
    future.add_done_callback(lambda _: promise.resolve(None))
    return promise


def copied(future: Promise[T]) -> Promise[T]:
    """A promise that completes as ``future`` does, unless something else completes it first."""
    promise: Promise[T] = Promise()
    future.add_done_callback(promise.follow)
    return promise


def all_of(promises: Iterable[Promise[T]]) -> Promise[tuple[T, ...]]:
    """A promise of the values of ``promises``, in order; it fails with the first that fails."""
    awaited = list(promises)
    if not awaited:
        return resolved(())
    together: Promise[tuple[T, ...]] = Promise()
    missing = set(awaited)

    def arrived(promise: Promise[T]) -> None:  # once more where a signal handler has struck it
        if (error := promise.exception()) is not None:
            together.fail(error)
        missing.discard(promise)
        if not missing and not together.done():
            together.resolve(tuple([promise.result() for promise in awaited]))

    for promise in awaited:
        promise.add_done_callback(arrived)
    return together


class Condition:
    """A condition for protocols: any thread notifies, and every protocol that waits goes on."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may notify.
        self._lock: Final = threading.RLock()
        self._notified: Promise[None] = Promise()

    @property
    def notified(self) -> Promise[None]:
        """Kept at the next notification. Take it before looking at the state, then wait for it."""
        return self._notified

    def notify(self) -> None:
        """Tell all that wait."""
        with self._lock:
            notified, self._notified = self._notified, Promise()
        notified.resolve(None)

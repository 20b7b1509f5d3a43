"""Futures that I/O threads complete and that no waiter can break."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NoReturn, TypeVar

from coordlock.log import Log

__all__ = ["Promise", "copied", "failed", "resolved", "settled"]

log = Log("coordlock")

T = TypeVar("T")


class Promise(Future[T]):
    """A future that is completed once, by the first to try, and never cancelled.

    A waiter keeps several, so they are small: a plain future's condition alone takes a kilobyte.
    What makes them safe for threads is that Python appends to a list, and pops from it, in one
    step: the first outcome is the outcome, and each callback is popped, and so called, once.

    The functions of `concurrent.futures` and `asyncio.wrap_future` reach for that condition, and
    cannot be used: see `coordlock.runtime.driver.completion`.
    """

    __slots__ = ("_callbacks", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        self._callbacks: list[Callable[[Future[T]], object]] = []

    def resolve(self, value: T) -> bool:
        """Complete with ``value``; False when something else came first."""
        return self._settle((value, None))

    def fail(self, error: BaseException) -> bool:
        """Complete with ``error``; False when something else came first."""
        return self._settle((None, error))

    def follow(self, done: Future[T]) -> None:
        """Complete as ``done`` has, unless something else came first."""
        error = done.exception()
        if error is None:
            self.resolve(done.result())
        else:
            self.fail(error)

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> bool:
        self._outcomes.append(outcome)
        # A second call does it, too: Ctrl-C may have kept the first one from it.
        self._call_back()
        return self._outcomes[0] is outcome

    def _call_back(self) -> None:
        try:
            while self._callbacks:
                try:
                    callback = self._callbacks.pop(0)
                except IndexError:
                    return  # it was added just now, by a thread that calls it itself
                self._call(callback)
        finally:
            if self._callbacks:  # Ctrl-C came between
                self._call_back()

    def _call(self, callback: Callable[[Future[T]], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a callback of a promise failed")

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn`` with this promise once it is complete: here and now, if it is."""
        self._callbacks.append(fn)
        if self._outcomes:
            # A thread that completes it now has seen `fn` there, or not: one of the two takes it.
            try:
                self._callbacks.remove(fn)
            except ValueError:
                return
            self._call(fn)

    def done(self) -> bool:
        """Whether it is complete."""
        return bool(self._outcomes)

    def running(self) -> bool:
        """Whether it is not complete yet."""
        return not self._outcomes

    def cancel(self) -> bool:
        """False: nobody can."""
        return False

    def cancelled(self) -> bool:
        """False: nobody can."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """The value, or the error raised. Waits ``timeout`` seconds at most: TimeoutError."""
        value: T
        value, error = self._outcome(timeout)
        if error is None:
            return value
        try:
            raise error
        finally:
            del self, error  # its traceback refers to this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None. Waits ``timeout`` seconds at most: TimeoutError."""
        return self._outcome(timeout)[1]

    def _outcome(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        if not self._outcomes:
            completed = threading.Event()
            self.add_done_callback(lambda _: completed.set())
            if not completed.wait(timeout):
                raise TimeoutError
        return self._outcomes[0]

    def set_running_or_notify_cancel(self) -> bool:
        """True: it runs from the beginning."""
        return True

    def set_result(self, result: T) -> None:
        """As `resolve`; raises InvalidStateError when something else came first."""
        if not self.resolve(result):
            self._refuse()

    def set_exception(self, exception: BaseException | None) -> None:
        """As `fail`; raises InvalidStateError when something else came first."""
        if exception is None or not self.fail(exception):
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidStateError(f"{self!r} cannot be completed with that")

    def __repr__(self) -> str:
        if not self._outcomes:
            return "<Promise: open>"
        value, error = self._outcomes[0]
        what = repr(value) if error is None else f"failed: {error!r}"
        return f"<Promise: {what}>"


def resolved(value: T) -> Promise[T]:
    """A promise that is already kept."""
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def failed(error: BaseException) -> Promise[T]:
    """A promise that is already broken."""
    promise: Promise[T] = Promise()
    promise.fail(error)
    return promise


def settled(future: Future[T]) -> Promise[None]:
    """A promise that is kept when ``future`` is done, however it ends."""
    promise: Promise[None] = Promise()
    future.add_done_callback(lambda _: promise.resolve(None))
    return promise


def copied(future: Future[T]) -> Promise[T]:
    """A promise that takes the outcome of ``future``, unless something else comes first."""
    promise: Promise[T] = Promise()
    future.add_done_callback(promise.follow)
    return promise

"""Counters: one number that many clients add to, each time exactly once."""

from __future__ import annotations

from typing import Any

from coordlock.backend import Listing
from coordlock.recipes.shared.exactly_once import ExactlyOnce
from coordlock.recipes.shared.observer import AsyncObserver, Observer
from coordlock.records.stored_record import Folder
from coordlock.runtime.driver import Steps, awaiting, blocking

__all__ = ["AsyncCounter", "Counter"]


class _BaseCounter(ExactlyOnce):
    """What sync and async counters share."""

    _folder = Folder.COUNTERS
    _kind = "counter"

    def _check_kept(self, value: Any) -> None:
        if type(value) is not int:
            raise TypeError

    def _add(self, n: int = 1) -> Steps[int]:
        """Add ``n``, which may be negative, exactly once; returns the new number.

        A lost answer does not add twice, because the record tells what each client added. Raises
        TypeError unless ``n`` is an int, and `BackendUnavailable` when no answer came within the
        client's ``request_timeout``, or more than 128 additions followed a lost answer: the error
        says whether ``n`` may have been added. When Ctrl-C or a cancellation ends the call, it may
        have been.
        """
        if type(n) is not int:
            raise TypeError(f"n must be an int, not {type(n).__name__}")

        def add(before: int | None) -> tuple[int, int]:
            after = (before or 0) + n
            return after, after

        return (yield from self._change(add))

    def _get(self) -> Steps[int]:
        """The number, 0 at first. It includes all additions acknowledged before the call.

        Raises `BackendUnavailable`.
        """
        return (yield from self._value()) or 0

    def _shown(self, listing: Listing, before: int | None) -> int:
        return self._value_in(listing) or 0


class Counter(_BaseCounter):
    """One number that many clients add to, each time exactly once. Made by `Client`; reusable.

    As in::

        number = client.counter("invoices").add()
    """

    add = blocking(_BaseCounter._add)
    get = blocking(_BaseCounter._get)

    def observe(self) -> Observer[int]:
        """An iterator of the number now and of each new one; see `Value.observe`."""
        return Observer(
            self._access.engine, self._record.follow, self._shown, self._kind, self.name
        )


class AsyncCounter(_BaseCounter):
    """One number that many clients add to, each time exactly once. Made by `AsyncClient`."""

    add = awaiting(_BaseCounter._add)
    get = awaiting(_BaseCounter._get)

    def observe(self) -> AsyncObserver[int]:
        """An async iterator of the number; see `Counter.observe`."""
        return AsyncObserver(
            self._access.engine, self._record.follow, self._shown, self._kind, self.name
        )

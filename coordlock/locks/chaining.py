"""Chains the loss of a lock to an error of its block, so that both are shown."""

from __future__ import annotations

from copy import copy

from coordlock.errors import CoordlockError

__all__ = ["raise_or_chain"]


def raise_or_chain(error: CoordlockError, body: BaseException | None) -> None:
    """Raise ``error`` at the end of a block, chained to ``body`` if the block raised that."""
    if body is None:
        raise error
    _chain(body, copy(error))  # the copy has no context; that of ``error`` may be ``body``


def _chain(error: BaseException, lost: BaseException) -> None:
    """Chain ``error`` to ``lost``; add a note where tracebacks hide the chain.

    ``lost`` becomes the context of the oldest exception in the chain of ``error``. Tracebacks hide
    it where an exception on the way suppresses its context, and where the chain is a cycle.
    """
    oldest, seen, is_shown = error, {id(error)}, True
    while (before := oldest.__context__) is not None and id(before) not in seen:
        is_shown = is_shown and (not oldest.__suppress_context__ or oldest.__cause__ is before)
        seen.add(id(before))
        oldest = before
    is_circle = before is not None
    if not is_circle:
        oldest.__context__ = lost
    if is_circle or oldest.__suppress_context__ or not is_shown:
        error.add_note(str(lost))

"""``coordlock evict``: freeing a lock that is stuck, or asking its holder to."""

from __future__ import annotations

import time
from typing import Final

from coordlock.cli.confirm import confirm
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import UsageError, usage_errors
from coordlock.cli.queues import mode_of
from coordlock.cli.text import age, dashed, echo, listed, printable
from coordlock.client import Client
from coordlock.model.contender import Contender, are_same
from coordlock.model.queue_entry import QueueEntry

__all__ = ["evict"]

#: Seconds from one look to the next, whether those that were asked have gone.
_INTERVAL: Final = 0.2


def evict(
    *,
    name: str,
    token: int | None,
    everybody: bool,
    yes: bool,
    ask: bool,
    reason: str | None,
    timeout: float | None,
    service: Service,
) -> int:
    """Evict the holder of the lock NAME.

    The holder learns that it lost the lock, but nothing stops it: make sure that it no longer
    works, or that a fence refuses its token. The exit status is 1 if there was nobody to evict.

    With --ask, the command evicts nobody. It asks all holders, or the one with --token, to release
    the lock. They may keep it. Programs that use grant.release_requested learn of the request, and
    so does `coordlock run --on-ask`. The exit status is 1 if nobody holds the lock, or if one that
    was asked still holds it after --timeout.
    """
    if ask and everybody:
        raise UsageError("--ask asks all holders, and --all is for evicting: leave one of them out")
    if ask:
        from coordlock.records.release_requests import check_reason

        with usage_errors():
            check_reason(reason or "")
        with service.connected() as client:
            return _ask(client, name, token, reason or "", timeout)
    if reason is not None or timeout is not None:
        raise UsageError("--reason and --timeout are for --ask")
    with service.connected() as client:
        queue_view = client.admin.contenders(name)
        chosen = _choose(queue_view, token, everybody)
        if not chosen:
            complain(_nobody(name, queue_view, token))
            return Exit.FAILED
        facts = [f"  {_describe(one)}" for one in chosen]
        facts.append("Nothing stops them: they may still be at work.")
        confirm(f"Evict from {name!r}?", *facts, yes=yes)
        if everybody:
            evicted = client.admin.evict_all(name)
        else:
            evicted = tuple(one for one in chosen if client.admin.evict(one))
    gone = [one.contender for one in evicted]
    for one in chosen:
        if not _is_among(one.contender, gone):
            echo(f"already gone: {_describe(one)}")
    for one in evicted:
        echo(f"evicted: {_describe(one)}")
    return Exit.OK if evicted else Exit.FAILED


def _ask(client: Client, name: str, token: int | None, reason: str, timeout: float | None) -> int:
    """Ask the holders of ``name``, and wait for them; the exit status."""
    chosen: QueueEntry | None = None
    if token is not None:
        queue_view = client.admin.contenders(name)
        chosen = next((one for one in queue_view if one.token == token), None)
        if chosen is None:
            complain(_nobody(name, queue_view, token))
            return Exit.FAILED
    asked = client.admin.request_release(name, reason, contender=chosen)
    if not asked:
        complain(f"nobody holds {name!r}")
        return Exit.FAILED
    for one in asked:
        echo(f"asked: {_describe(one)}")
    if timeout is None:
        return Exit.OK
    left, end = [one.contender for one in asked], time.monotonic() + timeout
    while there := [
        one.contender for one in client.admin.contenders(name) if _is_among(one.contender, left)
    ]:
        if time.monotonic() >= end:
            complain(f"{name!r} is still held by {listed(list(map(str, there)))}")
            return Exit.FAILED
        time.sleep(_INTERVAL)
    return Exit.OK


def _is_among(contender: Contender, others: list[Contender]) -> bool:
    return any(are_same(contender, one) for one in others)


def _choose(
    queue_view: tuple[QueueEntry, ...], token: int | None, everybody: bool
) -> tuple[QueueEntry, ...]:
    if everybody:
        return queue_view
    if token is not None:
        return tuple(one for one in queue_view if one.token == token)
    holding = tuple(one for one in queue_view if one.holding)
    if len(holding) > 1:
        tokens = ", ".join(str(one.token) for one in holding)
        raise UsageError(f"{len(holding)} clients hold the lock: give --token ({tokens}) or --all")
    return holding


def _nobody(name: str, queue_view: tuple[QueueEntry, ...], token: int | None) -> str:
    """Why there is nobody to evict."""
    if token is None or not queue_view:
        return f"nobody to evict from {name!r}: nobody holds it"
    holders = [str(one.contender) for one in queue_view if one.holding]
    waiting = [str(one.contender) for one in queue_view if not one.holding]
    held = f"held by {listed(holders)}" if holders else "nobody holds it"
    waited = f"; waiting: {listed(waiting)}" if waiting else ""
    return f"nobody who holds or waits for {name!r} has the token {token}: {held}{waited}"


def _describe(one: QueueEntry) -> str:
    state = "holds" if one.holding else "waits"
    owner = printable(str(one.owner or one.contender.key))
    queued = "" if one.age is None else f", queued {age(one.age)} ago"
    return f"{owner}: {state}, {mode_of(one)}, token {dashed(one.token)}{queued}"

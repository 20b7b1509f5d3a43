"""The text form of a grant's token, for any process: what Chubby calls a sequencer.

It names the lock, what was granted of it, and the token: ``orders:lock:42``. See Burrows, "The
Chubby lock service for loosely-coupled distributed systems", 2006, section 2.4.
"""

from __future__ import annotations

import re
from typing import Final

from coordlock.errors import Evicted, InvalidName, InvalidToken, LockLost
from coordlock.kernel.engine import Engine
from coordlock.locks.queue_view import QueueEntry, queue_view
from coordlock.model.claim import Claim, in_force, parse_marker
from coordlock.model.names import check_name, escape, unescape
from coordlock.runtime.driver import Steps

__all__ = ["sequencer", "verified"]

_FORM: Final = re.compile(r"([^:]+):([a-z]+[0-9]*):([1-9][0-9]{0,18})")


def sequencer(name: str, claim: Claim, token: int) -> str:
    """The text for ``token`` of the lock ``name``: ASCII without spaces."""
    return f"{escape(name)}:{claim.marker}:{token}"


def verified(engine: Engine, text: str) -> Steps[QueueEntry]:
    """The queue entry of the grant that ``text`` names, held at a moment during this call.

    Raises `InvalidToken`, `LockLost` and `BackendUnavailable`.
    """
    name, claim, token = _parsed(text)
    queue = yield from queue_view(engine, name)
    found = next((entry for entry in queue if entry.token == token), None)
    if found is None:
        raise LockLost(name, token, "no contender in its queue has this token any more")
    if not found.holding:
        raise LockLost(name, token, "its contender waits for others")
    if found.claim != claim:
        raise LockLost(name, token, f"its contender holds {found.claim}, not {claim}")
    # A member that has lost its majority may have answered the reading; the whole service answers
    # this. A contender that was admitted, and is still in its queue, holds the lock.
    try:
        yield from engine.ask(lambda: engine.backend.write((), [found.contender]))
    except Evicted:
        raise LockLost(name, token, "its contender has just left the queue") from None
    return found


def _parsed(text: str) -> tuple[str, Claim, int]:
    if not isinstance(text, str):
        raise TypeError(f"a sequencer is a text, not {type(text).__name__}")
    if (match := _FORM.fullmatch(text)) is None or (name := unescape(match[1])) is None:
        raise _invalid(text)
    claim = in_force(parse_marker(match[2]))
    if claim.marker != match[2]:
        raise _invalid(text)
    try:
        return check_name(name), claim, int(match[3])
    except InvalidName:
        raise _invalid(text) from None


def _invalid(text: object) -> InvalidToken:
    return InvalidToken(text, "is not a sequencer, such as 'orders:lock:42': pass grant.sequencer")

"""The text form of a grant's token, for any process: what Chubby calls a sequencer.

It names the lock, what was granted of it, and the token: ``orders:lock:42``. See Burrows, "The
Chubby lock service for loosely-coupled distributed systems", 2006, section 2.4.
"""

from __future__ import annotations

import re
from typing import Final

from coordlock.errors import InvalidName, InvalidToken
from coordlock.model.claim import Claim, in_force, parse_marker
from coordlock.model.names import check_name, escape, unescape

__all__ = ["parse_sequencer", "sequencer"]

_FORM: Final = re.compile(r"([^:]+):([a-z]+[0-9]*):([1-9][0-9]{0,18})")


def sequencer(name: str, claim: Claim, token: int) -> str:
    """The text for ``token`` of the lock ``name``: ASCII without spaces."""
    return f"{escape(name)}:{claim.marker}:{token}"


def parse_sequencer(text: str) -> tuple[str, Claim, int]:
    """The name, the claim and the token in ``text``. Raises `InvalidToken`."""
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

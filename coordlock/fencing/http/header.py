"""The header ``Fencing-Token``: what it says, written and read. No I/O.

An item of RFC 9651 with a boolean parameter, ``34`` or ``34; shared``, except that its integer has
up to 19 digits where the RFC ends at 15.
"""

from __future__ import annotations

import re
from typing import Final

from coordlock.errors import InvalidToken
from coordlock.fencing.token import FencingToken

__all__ = ["HEADER", "format_token", "parse_token"]

HEADER: Final = "Fencing-Token"

_VALUE: Final = re.compile(r"([1-9][0-9]{0,18})(; *shared(?:=\?1)?)?")


def format_token(token: FencingToken) -> str:
    """The header's value for ``token``."""
    return f"{token.value}; shared" if token.shared else str(token.value)


def parse_token(value: str) -> FencingToken:
    """The token that the header's ``value`` says. Raises `InvalidToken` for anything unusual.

    So does what a server makes of several headers, values joined by commas.
    """
    found = _VALUE.fullmatch(value)
    if found is None:
        raise InvalidToken(value)
    return FencingToken(int(found[1]), shared=found[2] is not None)

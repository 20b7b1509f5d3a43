"""What the middleware makes of a request's method and headers. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from coordlock.errors import ConfigurationError, InvalidToken
from coordlock.fencing.http.header import parse_token
from coordlock.fencing.http.problem import INVALID, MISSING, Problem
from coordlock.fencing.token import FencingToken

__all__ = ["TOKEN_KEY", "Require", "judge", "valid"]

#: Where the application finds the `coordlock.fencing.FencingToken` of its request, if it has one.
TOKEN_KEY: Final = "coordlock.fencing_token"

#: Which requests must have a token: those that may change something, all, or none.
Require = Literal["unsafe", "all", "none"]

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def valid(require: Require) -> Require:
    """``require``; raises `ConfigurationError` for anything else."""
    if require not in get_args(Require):
        raise ConfigurationError(f"require is one of {get_args(Require)}, not {require!r}")
    return require


def judge(method: str, values: Sequence[str], require: Require) -> FencingToken | Problem | None:
    """The token of a request, or the answer to it, or None where it may go without a token.

    ``values`` are those of its headers of the name `HEADER`.
    """
    if not values:
        needed = require == "all" or (require == "unsafe" and method not in _SAFE)
        return MISSING if needed else None
    if len(values) > 1:
        return INVALID
    try:
        return parse_token(values[0])
    except InvalidToken:
        return INVALID

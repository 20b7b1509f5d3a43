"""Which requests the middleware lets pass, by their method and headers. No I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Final, Literal, get_args
from urllib.parse import unquote

from coordlock.errors import ConfigurationError, InvalidToken
from coordlock.fencing.http.header import parse_token
from coordlock.fencing.http.problem import INVALID, MISSING, Problem
from coordlock.fencing.token import FencingToken
from coordlock.runtime.guards import PlainFunction

__all__ = ["RESOURCE", "TOKEN_KEY", "Require", "check_options", "judge", "resource_of"]

#: Where the application finds the `coordlock.fencing.FencingToken` of its request, if it has one.
TOKEN_KEY: Final = "coordlock.fencing_token"

#: Which requests must have a token: those that may change something, all, or none.
Require = Literal["unsafe", "all", "none"]

RESOURCE: Final = PlainFunction(
    "resource must be a function of the request",
    "which names no resource",
    "give a plain function",
    "give a plain function",
)

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def check_options(require: Require, fence: object, kind: type, interface: str) -> None:
    """Raise `ConfigurationError` for another ``require``, or a fence of another ``kind``."""
    if require not in get_args(Require):
        raise ConfigurationError(f"require is one of {get_args(Require)}, not {require!r}")
    if not (fence is None or isinstance(fence, kind)):
        raise ConfigurationError(
            f"the middleware for {interface} needs a fence of the kind {kind.__name__}, "
            f"not {type(fence).__name__}; with fence=None the application checks the token"
        )


def resource_of(path: str) -> str:
    """The resource at ``path``: one name for all spellings that routers take for one path.

    Repeated slashes, a slash at the end, ``.``, ``..`` and percent-encoding make no difference. To
    tell two paths apart that differ in nothing else would let a stale token pass at the second
    spelling; to take them for one can only refuse more.
    """
    return posixpath.normpath("/" + unquote(path).lstrip("/"))


def judge(method: str, values: Sequence[str], require: Require) -> FencingToken | Problem | None:
    """The request's token, or the answer to a wrong one, or None where it needs no token.

    ``values`` are those of its headers with the name `HEADER`.
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

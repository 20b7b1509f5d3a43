"""An event as one line of JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from select import PIPE_BUF
from sys import intern
from typing import Any, Final, get_type_hints

from coordlock.model.claim import Claim, Convertible, Mode, Permit, parse_marker
from coordlock_faults import events
from coordlock_faults.events import Act, Event, Kind, Reach

__all__ = ["decode", "encode"]

#: Texts that come from elsewhere, and how much of them is kept: a line must stay below PIPE_BUF.
_TEXTS: Final = ("detail", "reason")
_TEXT_LENGTH: Final = 200


def encode(event: Event) -> bytes:
    """The line, shorter than PIPE_BUF. Raises ValueError for an event that does not fit in."""
    line: dict[str, Any] = {"event": type(event).__name__}
    for name in _DECODERS[type(event)]:
        line[name] = getattr(event, name)
    for name in _TEXTS:
        if name in line:
            line[name] = line[name][:_TEXT_LENGTH]
    data = json.dumps(line, separators=(",", ":"), default=_encoded).encode() + b"\n"
    if len(data) >= PIPE_BUF:
        raise ValueError(f"an event of {len(data)} bytes; less than {PIPE_BUF} are one piece")
    return data


def decode(line: bytes) -> Event:
    """The event of a line. Raises ValueError that says what is wrong with it."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    name = found.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"no such event: {name!r}")
    decoders = _DECODERS[kind]
    # What has a default may be missing: it came to be known after some histories were written.
    if not _REQUIRED[kind] <= found.keys() <= decoders.keys():
        raise ValueError(f"{name} has the fields {', '.join(decoders)}; found {', '.join(found)}")
    try:
        return kind(**{key: decoders[key](value) for key, value in found.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _encoded(value: object) -> object:
    match value:
        case Mode() | Permit():
            return value.marker
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
    raise TypeError(f"cannot be written: {value!r}")


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"an integer was expected, not {value!r}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"a text was expected, not {value!r}")
    return intern(value)  # names come again and again


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"true or false was expected, not {value!r}")
    return value


def _claim(value: Any) -> Claim:
    claim = parse_marker(_text(value))
    if claim.marker != value or isinstance(claim, Convertible):
        raise ValueError(f"no claim: {value!r}")
    return claim


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"a list was expected, not {value!r}")
    return value


def _table(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise ValueError(f"an object was expected, not {value!r}")
    return {_text(key): _text(one) for key, one in value.items()}


_BY_TYPE: Final[dict[Any, Callable[[Any], Any]]] = {
    int: _integer,
    int | None: lambda value: None if value is None else _integer(value),
    str: _text,
    bool: _truth,
    Claim: _claim,
    Act: Act,
    Kind: Kind,
    Reach: Reach,
    tuple[int, ...]: lambda value: tuple(map(_integer, _list(value))),
    tuple[str, ...]: lambda value: tuple(map(_text, _list(value))),
    Mapping[str, str]: _table,
}
_KINDS: Final[dict[str, type[Event]]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


def _decoders(kind: type[Event]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _BY_TYPE[hints[field.name]] for field in fields(kind)}


_DECODERS: Final = {kind: _decoders(kind) for kind in _KINDS.values()}
_REQUIRED: Final = {
    kind: {
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    }
    for kind in _KINDS.values()
}

"""The text of stored records: a JSON object that names its format.

A later release may add fields to a format. This one ignores them when it reads a record, and keeps
them when it rewrites the record. A release that changes what a field means writes a higher format,
which this one refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["FORMAT", "NewerFormat", "decode", "encode"]

#: The format of every kind of record in this release.
FORMAT: Final = 1


class NewerFormat(Exception):
    """A newer release wrote the record, in a format that this one does not know."""

    def __init__(self, format: int) -> None:
        super().__init__(
            f"is in format {format} of a newer release, and this one reads format {FORMAT}: "
            "upgrade coordlock here"
        )


def encode(fields: Mapping[str, object], read: Mapping[str, object] | None = None) -> bytes:
    """The record with ``fields``, and with what only the record that was ``read`` has."""
    record = {**(read or {}), **fields, "format": FORMAT}
    return json.dumps(record, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """All fields of the record. Raises `NewerFormat`, and ValueError for what is no record."""
    try:
        fields: Any = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    format = fields.get("format") if isinstance(fields, dict) else None
    if type(format) is not int or format < 1:
        raise ValueError("no record of coordlock")
    if format > FORMAT:
        raise NewerFormat(format)
    found: dict[str, Any] = fields
    return found

"""What clients and the resource say to each other: a line of JSON each way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from coordlock_faults.events import Kind

__all__ = ["Answer", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on ``resource``, under ``token``. Reads have no ``value``."""

    operation: str
    resource: str
    token: int
    shared: bool
    kind: Kind
    value: int | None = None

    def encode(self) -> bytes:
        """As a line."""
        return json.dumps(asdict(self) | {"kind": self.kind.value}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        """From a line. Raises ValueError and TypeError for what is none."""
        fields = json.loads(line)
        return cls(**(fields | {"kind": Kind(fields["kind"])}))


@dataclass(frozen=True, slots=True)
class Answer:
    """``order`` and, of a read, the number of values; or for a stale token the ``newest``."""

    order: int | None = None
    value: int | None = None
    newest: int | None = None

    def encode(self) -> bytes:
        """As a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Answer:
        """From a line. Raises ConnectionError where the line came to no end: nobody is there."""
        if not line.endswith(b"\n"):
            raise ConnectionError("the resource has gone")
        return cls(**json.loads(line))

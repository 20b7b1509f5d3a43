"""Container znodes: parents that the server removes when their last child has left.

kazoo has no call for them, but sends any request object that has these attributes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

__all__ = ["CreateContainer"]

_CONTAINER: Final = 4
_INT: Final = struct.Struct("!i")


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """ZooKeeper's ``createContainer`` request (opcode 19, since 3.5.1), as kazoo sends requests.

    The opcode matters: ``create2`` with the same flags is accepted, but the node then never goes.
    ``path`` is the full path, the chroot included.
    """

    path: str
    acl: Sequence[Any]
    type: ClassVar[int] = 19

    def serialize(self) -> bytes:
        """The request's body: path, empty data, ACL, flags."""
        parts = [_text(self.path), _INT.pack(0), _INT.pack(len(self.acl))]
        for one in self.acl:
            parts += [_INT.pack(one.perms), _text(one.id.scheme), _text(one.id.id)]
        parts.append(_INT.pack(_CONTAINER))
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        """The reply holds the path and the stat, which are not needed."""
        return True


def _text(text: str) -> bytes:
    if not text:
        return _INT.pack(-1)  # null, as kazoo sends it
    data = text.encode()
    return _INT.pack(len(data)) + data

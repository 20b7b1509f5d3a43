"""ZooKeeper's election protocol, as far as a relay has to know it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from coordlock.testing.frames import Frame

__all__ = ["ElectionFrames"]

#: The protocol's version, the sender's number, and the length of its address.
_HELLO: Final = struct.Struct(">qqi")


class ElectionFrames:
    """Puts the relay's address for the dialler's own into its first message.

    Of two servers, the one with the greater number keeps its connection. Where the other one dials,
    it hangs up and dials back, the address that it was told: past the relays, unless they do what
    routers between networks do.

    Args:
        addresses: where the network has the election port of each server, by its number.
    """

    def __init__(self, addresses: dict[int, str]) -> None:
        self._addresses = addresses
        self._begun: bytes | None = b""

    def requests(self, data: bytes) -> Iterator[Frame]:
        """The first message whole and translated, then whatever comes."""
        if self._begun is None:
            yield Frame(data)
            return
        self._begun += data
        if len(self._begun) < _HELLO.size:
            return
        version, number, length = _HELLO.unpack_from(self._begun)
        end = _HELLO.size + length
        if len(self._begun) >= end:
            address = self._addresses[number].encode()
            rest, self._begun = self._begun[end:], None
            yield Frame(_HELLO.pack(version, number, len(address)) + address + rest)

    def replies(self, data: bytes) -> Iterator[Frame]:
        """As they come."""
        yield Frame(data)

"""A name server whose answer a test chooses."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Final, Self

__all__ = ["NameServer"]

_A: Final = 1
_ANSWER, _FAILURE = 0x8180, 0x8182


class NameServer:
    """Gives each name the same address; a context manager.

    Attributes:
        address: of all names, in IPv4; None for a failure of the server.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: Final = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="name-server")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            asked, client = self._socket.recvfrom(4096)
            if not asked:
                return
            self._socket.sendto(self._reply(asked), client)

    def _reply(self, asked: bytes) -> bytes:
        # A header of 12 bytes, the name up to its zero byte, the type, and the class.
        end = asked.index(0, 12) + 5
        question = asked[12:end]
        is_found = self.address is not None and struct.unpack("!H", question[-4:-2]) == (_A,)
        status = _FAILURE if self.address is None else _ANSWER
        reply = asked[:2] + struct.pack("!HHHHH", status, 1, int(is_found), 0, 0) + question
        if self.address is not None and is_found:
            # The name of the question, to be asked for again after no time at all.
            reply += struct.pack("!HHHIH", 0xC00C, _A, 1, 0, 4) + socket.inet_aton(self.address)
        return reply

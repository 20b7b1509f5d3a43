"""Who dialled a connection on this machine: asked of the kernel, without privileges."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

__all__ = ["owns", "socket_number"]

# From linux/sock_diag.h and linux/inet_diag.h.
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ERROR: Final = 2
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, sender
_FAMILY: Final = struct.Struct("=BBBBI")  # family, protocol, extensions, -, states
_PORTS: Final = struct.Struct("!HH")
# Header, then 4 bytes of states, 48 of addresses and 16 of counters.
_NUMBER: Final = struct.Struct("=I")
_NUMBER_AT: Final = _HEADER.size + 68
_LOOPBACK: Final = socket.inet_aton("127.0.0.1").ljust(16, b"\0")


def socket_number(port: int, peer: int) -> int | None:
    """The inode of the socket from 127.0.0.1:``port`` to 127.0.0.1:``peer``; None: it is gone.

    IPv6 sockets that dialled ``::ffff:127.0.0.1``, as Java's do, are found as well. /proc/net/tcp
    says the same in milliseconds rather than microseconds, which connections would wait for.
    Raises OSError where the kernel does not tell.
    """
    request = (
        _FAMILY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        + _PORTS.pack(port, peer)
        + _LOOPBACK
        + _LOOPBACK
        + bytes(4)  # any interface
        + b"\xff" * 8  # any cookie
    )
    header = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(header + request)
        answer = kernel.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        [error] = struct.unpack_from("=i", answer, _HEADER.size)
        if -error == errno.ENOENT:
            return None
        raise OSError(-error, os.strerror(-error))
    return int(_NUMBER.unpack_from(answer, _NUMBER_AT)[0]) or None


def owns(pid: int, number: int) -> bool:
    """Whether the process has that socket open; False for one that has ended."""
    wanted = f"socket:[{number}]"
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    # Newest first: it is about a connection that was just made.
    for descriptor in sorted(descriptors, key=int, reverse=True):
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") == wanted:
                return True
        except OSError:  # closed meanwhile
            continue
    return False

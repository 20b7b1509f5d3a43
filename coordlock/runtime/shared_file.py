"""What small files have in common that the processes of one machine share under a lock."""

from __future__ import annotations

import binascii
import os
import threading
from typing import Final

__all__ = ["no_fork", "overwrite", "seal", "unseal"]

#: Held by every fork. Code that holds it can open a file and lock it, or note it, and no child
#: comes in between: it would inherit the lock, and keep it when its parent is killed. Reentrant
#: for signal handlers.
no_fork: Final = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=no_fork.acquire,
        after_in_parent=no_fork.release,
        after_in_child=no_fork.release,
    )


def seal(fields: str) -> bytes:
    """One line of ASCII with a checksum."""
    data = fields.encode("ascii")
    return data + f" {binascii.crc32(data):08x}\n".encode("ascii")


def unseal(data: bytes) -> str:
    """The fields that `seal` made ``data`` from; ValueError when it made no such line."""
    fields = data[:-10].decode("ascii")
    if data != seal(fields):
        raise ValueError("the checksum is not that of the line")
    return fields


def overwrite(descriptor: int, data: bytes) -> bool:
    """Put ``data`` at the file's start; whether all of it was written.

    If it is always as long, and short: in one page and one call, so neither SIGKILL nor a full
    disk can split it.
    """
    return os.pwrite(descriptor, data, 0) == len(data)

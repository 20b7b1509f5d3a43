"""What contenders publish: a file for each contender that publishes something.

Its first line has the version of the directory's files and that of the value; the value follows. A
file is replaced as a whole, so each reading shows one moment. Only the contender's own process
writes it, and removes it once the contender has left; `sweep` removes what dead processes leave. A
contender without a file publishes nothing, in the first version.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from coordlock.errors import Evicted, VersionMismatch
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender
from coordlock_local import pipes
from coordlock_local.counter import VERSION
from coordlock_local.directory import Directory
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slot, stands

__all__ = ["described", "publish", "read", "remove", "write"]


def write(directory: Directory, session: str, id: str, value: bytes, version: int = 1) -> None:
    """Put ``value``, which the contender ``id`` of ``session`` publishes, into its file."""
    path = directory.value(session, id)
    new = f"{path}.new"
    try:
        with open(new, "wb", opener=directory.open) as file:
            file.write(f"{VERSION} {version}\n".encode())
            file.write(value)
        os.replace(new, path)
    except BaseException:  # a full disk, or Ctrl-C
        with suppress(OSError):
            os.unlink(new)
        raise


def described(directory: Directory, contender: Contender) -> Contender:
    """``contender`` with what its file has, and claims therefore."""
    value, version = read(directory, contender)
    claim = contender.claim
    if isinstance(claim, Convertible):
        claim = Convertible.decode(value)
    return replace(contender, claim=claim, value=value, version=version)


def publish(session: LocalSession, contender: Contender, value: bytes, version: int) -> None:
    """See `Backend.publish`."""
    directory, slot = session.directory, Slot.of(contender)
    with session.slots_lock:
        if session.has_ended or not stands(directory, slot):
            raise Evicted(contender.key)
        found = read(directory, contender)
        if found == (value, version + 1):
            return
        if found[1] != version:
            raise VersionMismatch(contender.key, version)
        write(directory, session.id, contender.id, value, version + 1)
    pipes.publish(directory, slot.queue)


def remove(directory: Directory, session: str, id: str) -> None:
    """Forget what the contender ``id`` of ``session`` has published; it has left."""
    with suppress(FileNotFoundError):
        os.unlink(directory.value(session, id))


def read(directory: Directory, contender: Contender) -> tuple[bytes, int]:
    """What ``contender`` publishes now, and its version."""
    try:
        path = directory.value(contender.session, contender.id)
        with open(path, "rb", opener=directory.open) as file:
            line, _, value = file.read().partition(b"\n")
    except FileNotFoundError:
        return b"", 1
    return value, int(line.split()[1])

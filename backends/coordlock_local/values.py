"""What contenders publish: a file for each contender that publishes something.

Its first line has the version of the directory's files and that of the value; the value follows. A
file is replaced as a whole, so each reading shows one moment. Only the contender's own process
writes it, and removes it once the contender has left; `sweep` removes what dead processes leave. A
contender without a file publishes nothing, in the first version.

A convertible contender publishes often, and little: what fits is in its slot (see `slots`), because
a file system takes ten times as long as a lock does to replace a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from coordlock.errors import Evicted, VersionMismatch
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender
from coordlock_local.counter import VERSION
from coordlock_local.directory import Directory
from coordlock_local.leaving import tell_change
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slot, Slots

__all__ = ["described", "publish", "remove", "version_of", "write"]


def write(directory: Directory, session: str, id: str, value: bytes, version: int = 1) -> None:
    """Put ``value``, which the contender ``id`` of ``session`` publishes, into its file."""
    path = directory.value(session, id)
    new = f"{path}.new"
    descriptor = directory.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(descriptor, "wb") as file:
        file.write(f"{VERSION} {version}\n".encode())
        file.write(value)
    os.replace(new, path)


def described(directory: Directory, contender: Contender) -> Contender:
    """``contender`` with what its file has, and claims therefore."""
    value, version = _read(directory, contender)
    claim = contender.claim
    if isinstance(claim, Convertible):
        claim = Convertible.decode(value)
    return replace(contender, claim=claim, value=value, version=version)


def version_of(directory: Directory, contender: Contender) -> int:
    """The version of what ``contender`` publishes now."""
    if not isinstance(contender.claim, Convertible):
        return _read(directory, contender)[1]
    slot = Slot.of(contender)
    try:
        with Slots(directory, slot.path) as slots:
            return _published(directory, slots, contender)[1]
    except FileNotFoundError:
        return 1


def publish(
    session: LocalSession,
    contender: Contender,
    value: bytes,
    version: int,
    note: Callable[[], object],
) -> None:
    """See `Backend.publish`. Calls ``note`` before it makes a file."""
    directory, slot = session.directory, Slot.of(contender)
    is_convertible = isinstance(contender.claim, Convertible)
    with session.changing:
        try:
            slots = Slots(directory, slot.path, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            raise Evicted(contender.key) from None
        with slots:
            if session.has_ended or slots.get(slot.number) != slot.token:
                raise Evicted(contender.key)
            found = _published(directory, slots, contender)
            if found == (value, version + 1):
                return
            if found[1] != version:
                raise VersionMismatch(contender.key, version)
            if not (is_convertible and slots.publish(slot.number, slot.token, value, version + 1)):
                note()
                write(directory, session.id, contender.id, value, version + 1)
                if is_convertible:
                    slots.publish(slot.number, slot.token, None, version + 1)
    tell_change(directory, slot, contender)


def remove(directory: Directory, session: str, id: str) -> None:
    """Forget what the contender ``id`` of ``session`` has published; it has left."""
    with suppress(FileNotFoundError):
        os.unlink(directory.value(session, id))


def _published(directory: Directory, slots: Slots, contender: Contender) -> tuple[bytes, int]:
    if isinstance(contender.claim, Convertible):
        slot = Slot.of(contender)
        value, version = slots.published(slot.number, slot.token)
        if value is not None:
            return value, version
    return _read(directory, contender)


def _read(directory: Directory, contender: Contender) -> tuple[bytes, int]:
    try:
        descriptor = directory.open(directory.value(contender.session, contender.id), os.O_RDONLY)
    except FileNotFoundError:
        return b"", 1
    with open(descriptor, "rb") as file:
        line, _, value = file.read().partition(b"\n")
    return value, int(line.split()[1])

"""What one client puts into queues: ids that are found again, and who it is."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from coordlock.model.claim import AnyClaim, Convertible
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.process import PROCESS

try:
    from _blake2 import blake2b  # what hashlib has, which loads OpenSSL for others
except ImportError:
    from hashlib import blake2b

__all__ = ["Announcement", "Entries", "EntryIds", "host_name"]

#: The owner of a contender whose value stands alone.
_NOBODY: Final = Owner("", 0)


class Announcement(NamedTuple):
    """What a contender publishes from the beginning.

    With ``stands_alone``, nothing is kept beside ``value``, not even who the owner is: for programs
    that read it as it is. The contender's id begins with ``identity``, hexadecimal digits by which
    it is known again in a later session.
    """

    value: bytes
    stands_alone: bool = False
    identity: str = ""


_NOTHING: Final = Announcement(b"")


class EntryIds:
    """Names that are never made a second time, of 32 hexadecimal digits. Not for use in a fork.

    Asking the system for each would let go of the interpreter, for which other threads wait. The
    clock tells apart the copies of a virtual machine, which share the secret and the number.
    """

    def __init__(self) -> None:
        self._secret: Final = os.urandom(32)
        self._numbers: Final = itertools.count()

    def __next__(self) -> str:
        name = f"{next(self._numbers)} {time.time_ns()}".encode()
        return blake2b(name, key=self._secret, digest_size=16).hexdigest()


def host_name() -> str:
    """This machine's."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # only on Windows: not cheap to import

    return socket.gethostname()


class Entries:
    """Makes the entries of one client.

    Args:
        label: describes the client, where an entry has no label of its own.
    """

    def __init__(self, label: str) -> None:
        self._label: Final = label
        self._host: Final = host_name()
        self._pid: Final = PROCESS.id
        self._ids: Final = EntryIds()

    def made(
        self,
        claims: Mapping[str, AnyClaim],
        label: str | None = None,
        announcement: Announcement | None = None,
    ) -> tuple[Entry, ...]:
        """New ones for the queues in ``claims``."""
        says = announcement or _NOTHING
        owner = _NOBODY
        if not says.stands_alone:
            label = self._label if label is None else label
            owner = Owner(self._host, self._pid, label, time.time())
        entries = []
        for queue, claim in claims.items():
            value = claim.encode() if isinstance(claim, Convertible) else says.value
            publishes = announcement is not None or isinstance(claim, Convertible)
            id = says.identity + next(self._ids)[len(says.identity) :]
            entries.append(Entry(queue, id, claim, owner, value, publishes))
        return tuple(entries)

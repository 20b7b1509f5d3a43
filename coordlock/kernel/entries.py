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

__all__ = ["Announcement", "Entries", "host_name"]

#: The owner of a contender whose value is raw.
_NO_OWNER: Final = Owner("", 0)


class Announcement(NamedTuple):
    """What a contender publishes from the beginning.

    A ``raw`` value is stored without its owner, for programs that read the key directly. The
    contender's id begins with ``identity``, hexadecimal digits by which others recognise it in a
    later session.
    """

    value: bytes
    raw: bool = False
    identity: str = ""


_NOTHING: Final = Announcement(b"")


def host_name() -> str:
    """This machine's."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # only on Windows: not cheap to import

    return socket.gethostname()


class Entries:
    """Makes the entries of one client, in one process."""

    def __init__(self, label: str) -> None:
        """``label`` describes the client, where an entry has no label of its own."""
        self._label: Final = label
        self._host: Final = host_name()
        self._pid: Final = PROCESS.id
        self._secret: Final = os.urandom(32)
        self._numbers: Final = itertools.count()

    def made(
        self,
        claims: Mapping[str, AnyClaim],
        label: str | None = None,
        announcement: Announcement | None = None,
    ) -> tuple[Entry, ...]:
        """New ones for the queues in ``claims``.

        Their ids of 32 hexadecimal digits are never made a second time. `os.urandom` for each would
        release the interpreter's lock. The clock tells apart the clones of a virtual machine, which
        share the secret and the number.
        """
        published = announcement or _NOTHING
        owner = _NO_OWNER
        if not published.raw:
            label = self._label if label is None else label
            owner = Owner(self._host, self._pid, label, time.time())
        entries = []
        for queue, claim in claims.items():
            value = claim.encode() if isinstance(claim, Convertible) else published.value
            publishes = announcement is not None or isinstance(claim, Convertible)
            number = f"{next(self._numbers)} {time.time_ns()}".encode()
            digits = blake2b(number, key=self._secret, digest_size=16).hexdigest()
            id = published.identity + digits[len(published.identity) :]
            entries.append(Entry(queue, id, claim, owner, value, publishes))
        return tuple(entries)

"""What the participants of a barrier must agree on, and which of them pass next. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coordlock.errors import QueueMismatch
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.record import NewerFormat, decode, encode

__all__ = ["MAX_PARTIES", "Rendezvous"]

#: How many parties a barrier may have: etcd takes 128 operations in one transaction.
MAX_PARTIES: Final = 100


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A barrier or a double barrier, which lets so many ``parties`` pass together.

    Each participant publishes ``kind`` and ``parties``, so that others find out when they differ.
    Raises ValueError for a number of parties that no barrier can have.
    """

    name: str
    parties: int
    kind: str = "barrier"

    def __post_init__(self) -> None:
        if type(self.parties) is not int or not 1 <= self.parties <= MAX_PARTIES:
            raise ValueError(
                f"parties must be an integer from 1 to {MAX_PARTIES}, which etcd takes in one "
                f"transaction, not {self.parties!r}"
            )

    @property
    def published(self) -> bytes:
        """What a participant publishes."""
        return encode({"barrier": self.kind, "parties": self.parties})

    def first(self, me: Contender, snapshot: Snapshot, passed: Iterable[str]) -> list[Contender]:
        """The first participants in ``snapshot`` that have not ``passed``: up to ``parties``.

        Raises `QueueMismatch` for one before ``me`` that takes this for another barrier.
        """
        waiting: dict[str, Contender] = {}  # by id: what was sent twice may be there twice
        for one in snapshot.contenders:
            if one.claim is Mode.NL and one.id not in passed:
                waiting.setdefault(one.id, one)
        mine = f"a {self.kind} of {self.parties}"
        for one in waiting.values():
            if one.order < me.order and (other := _used_as(one)) != mine:
                raise QueueMismatch(self.name, mine, other, str(one))
        return [one for one in waiting.values() if _used_as(one) == mine][: self.parties]

    def takes(self, first: list[Contender], me: Contender) -> bool:
        """Whether the ``first`` are enough to pass, with ``me`` among them."""
        return len(first) == self.parties and any(one.id == me.id for one in first)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def _used_as(contender: Contender) -> str:
    """What ``contender`` takes its queue for."""
    try:
        fields = decode(contender.value or b"")
        return f"a {fields['barrier']} of {fields['parties']}"
    except NewerFormat as newer:
        return f"a barrier that {newer}"
    except (ValueError, KeyError):
        return "something else than a barrier"

"""What the participants of a barrier agree on, who passes next, and who has passed. Pure.

Each time that a barrier opens, a generation of participants passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordlock.errors import NameConflict
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.record import NewerFormat, decode, encode

__all__ = ["MAX_PARTIES", "Generations", "Rendezvous"]

#: How many parties a barrier may have: etcd takes 128 operations in one transaction.
MAX_PARTIES: Final = 100
#: How many ids the generations that are listed whole have together, unless the last one has more.
_LISTED: Final = 256


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

        Raises `NameConflict` for one before ``me`` that takes this for another barrier.
        """
        waiting: dict[str, Contender] = {}  # by id: what was sent twice may be there twice
        for contender in snapshot.contenders:
            if contender.claim is Mode.NL and contender.id not in passed:
                waiting.setdefault(contender.id, contender)
        mine = f"a {self.kind} of {self.parties}"
        for contender in waiting.values():
            if contender.order < me.order and (other := _used_as(contender)) != mine:
                raise NameConflict(self.name, mine, other, str(contender))
        return [contender for contender in waiting.values() if _used_as(contender) == mine][
            : self.parties
        ]

    def takes(self, first: list[Contender], me: Contender) -> bool:
        """Whether the ``first`` are enough to pass, with ``me`` among them."""
        return len(first) == self.parties and any(contender.id == me.id for contender in first)

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


@dataclass(frozen=True, slots=True)
class Generations:
    """The record of a barrier: which contenders have passed together.

    It lists the last generations whole, and of older ones those that are still in the queue. So a
    participant in the queue finds out whether it has passed, however late, and none is counted
    twice.

    Attributes:
        whole_from: the number of the first generation that is listed whole.
        listed: by number, the ids of the contenders that passed together.
        life: of which life of the record this is told; None where there is no record.
    """

    whole_from: int = 1
    listed: Mapping[int, list[str]] = field(default_factory=dict)
    life: str | None = None

    @property
    def last(self) -> int:
        """How many generations have passed."""
        return max(self.listed, default=0)

    @property
    def passed(self) -> set[str]:
        """The ids of all that are listed."""
        return {id for ids in self.listed.values() for id in ids}

    def of(self, id: str) -> frozenset[str] | None:
        """Who has passed together with ``id``, as far as listed; None where that is not."""
        for ids in self.listed.values():
            if id in ids:
                return frozenset(ids)
        return None

    def after(self, passing: Iterable[str], queued: Collection[str]) -> dict[str, Any]:
        """The fields of the record when ``passing`` have passed, too.

        ``queued`` are all that were in the queue after this record was read.
        """
        generations = {**self.listed, self.last + 1: list(passing)}
        size, whole_from = 0, self.last + 1
        for number in sorted(generations, reverse=True):
            size += len(generations[number])
            if number < self.whole_from or (size > _LISTED and number <= self.last):
                generations[number] = [id for id in generations[number] if id in queued]
            else:
                whole_from = number
        listed = [[number, generations[number]] for number in sorted(generations)]
        return {
            "whole_from": whole_from,
            "generations": [generation for generation in listed if generation[1]],
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Generations:
        """What a record with these ``fields`` says."""
        if not fields:
            return cls()
        listed = {int(number): [str(id) for id in ids] for number, ids in fields["generations"]}
        return cls(int(fields["whole_from"]), listed, fields.get("record_id"))

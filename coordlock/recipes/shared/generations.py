"""Which participants have passed a barrier together: one small record beside its queue.

Each time that a barrier opens, a generation of participants passes. The record lists the last
generations whole, and of older ones those that are still in the queue. So a participant in the
queue finds out whether it has passed, however late, and none is counted twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Generations"]

#: How many ids the generations that are listed whole have together, unless the last one has more.
_LISTED: Final = 256


@dataclass(frozen=True, slots=True)
class Generations:
    """What the record of a barrier says.

    Attributes:
        whole_from: the number of the first generation that is listed whole.
        listed: by number, the ids of the contenders that passed together.
    """

    whole_from: int = 1
    listed: Mapping[int, list[str]] = field(default_factory=dict)

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
        return {"whole_from": whole_from, "generations": [one for one in listed if one[1]]}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Generations:
        """What a record with these ``fields`` says."""
        if not fields:
            return cls()
        listed = {int(number): [str(id) for id in ids] for number, ids in fields["generations"]}
        return cls(int(fields["whole_from"]), listed)

"""Which parties have passed a barrier together: one small record beside its queue.

A trip lets a cohort of parties pass. The record lists the last ones whole, and of older ones who
still stands in the queue: so a party that stands there finds out whether it has passed, however
late, and no party is counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from coordlock.backend import Listing, Stored
from coordlock.errors import BackendError

__all__ = ["Trips"]

#: How many ids the whole trips have together, or the last one alone has more.
_LISTED: Final = 256


@dataclass(frozen=True, slots=True)
class Trips:
    """What the record of a barrier says.

    Attributes:
        version: of the record; 0 where there is none.
        whole_from: the first of the generations whose trips are listed whole.
        cohorts: by generation, the ids of the contenders that passed together.
    """

    version: int = 0
    whole_from: int = 1
    cohorts: dict[int, list[str]] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """How many trips there were."""
        return max(self.cohorts, default=0)

    @property
    def passed(self) -> set[str]:
        """The ids of all that are listed."""
        return {id for cohort in self.cohorts.values() for id in cohort}

    def cohort_of(self, id: str) -> frozenset[str] | None:
        """Who has passed together with ``id``, as far as listed; None where that is not."""
        for cohort in self.cohorts.values():
            if id in cohort:
                return frozenset(cohort)
        return None

    def after(self, cohort: Iterable[str], standing: Collection[str]) -> bytes:
        """The record when ``cohort`` has passed, too.

        ``standing`` are all that stood in the queue after this record was read.
        """
        cohorts = {**self.cohorts, self.generation + 1: list(cohort)}
        size, whole_from = 0, self.generation + 1
        for generation in sorted(cohorts, reverse=True):
            size += len(cohorts[generation])
            if generation < self.whole_from or (size > _LISTED and generation <= self.generation):
                cohorts[generation] = [id for id in cohorts[generation] if id in standing]
            else:
                whole_from = generation
        listed = [[number, cohorts[number]] for number in sorted(cohorts) if cohorts[number]]
        fields = {"whole_from": whole_from, "trips": listed}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def read(cls, listing: Listing, key: str, service: str) -> Trips:
        """What the record under ``key`` says. Raises `BackendError` for what is none."""
        found = listing.values.get(key)
        if found is None:
            return cls()
        try:
            return cls.decode(found)
        except (ValueError, TypeError, KeyError):
            what = f"the key {key!r} is not as coordlock writes it"
            raise BackendError(service, what) from None

    @classmethod
    def decode(cls, stored: Stored) -> Trips:
        """What is ``stored``. Raises ValueError, TypeError or KeyError for what is none."""
        fields: Any = json.loads(stored.data)
        cohorts = {int(number): [str(id) for id in ids] for number, ids in fields["trips"]}
        return cls(stored.version, int(fields["whole_from"]), cohorts)

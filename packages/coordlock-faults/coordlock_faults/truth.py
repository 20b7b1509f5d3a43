"""The ground truth: which contenders the service had, and between which of its revisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coordlock_faults.events import (
    FOREVER,
    ContenderAppeared,
    ContenderDisappeared,
    Event,
    Surveyed,
)

__all__ = ["Life", "Truth"]


@dataclass(eq=False, slots=True)
class Life:
    """One contender in the service, from its creation to its deletion."""

    appeared: ContenderAppeared
    disappeared: ContenderDisappeared | None = None

    @property
    def gone(self) -> int:
        """The revision at which it was deleted; `FOREVER` when it was not."""
        return FOREVER if self.disappeared is None else self.disappeared.revision

    @property
    def names(self) -> tuple[str, str, str]:
        """What an operator's act on it may name: its lock, its key, its session."""
        return self.appeared.lock, self.appeared.key, self.appeared.session

    @property
    def events(self) -> tuple[Event, ...]:
        """Its creation and deletion."""
        if self.disappeared is None:
            return (self.appeared,)
        return self.appeared, self.disappeared


class Truth:
    """All contenders of a service.

    Attributes:
        lives: in the order of their creation.
        surveyed: up to where they are all; None where that is not known.
        strays: what contradicts the rest.
    """

    def __init__(
        self,
        appearances: Iterable[ContenderAppeared],
        disappearances: Iterable[ContenderDisappeared],
        surveyed: Surveyed | None,
    ) -> None:
        self.lives: Final[list[Life]] = []
        self.surveyed: Final = surveyed
        self.strays: Final[list[Event]] = []
        self._by_token: dict[tuple[str, int], Life] = {}
        self._build([*appearances, *disappearances])

    def _build(self, events: list[ContenderAppeared | ContenderDisappeared]) -> None:
        latest: dict[str, Life] = {}
        # A deletion that shares a revision with creations was of what had been there before.
        order = {ContenderDisappeared: 0, ContenderAppeared: 1}
        for event in sorted(events, key=lambda one: (one.revision, order[type(one)])):
            life = latest.get(event.key)
            match event:
                case ContenderAppeared():
                    if life is None or life.disappeared is not None:
                        life = latest[event.key] = Life(event)
                        self.lives.append(life)
                        self._by_token.setdefault((event.lock, event.token), life)
                    elif (life.appeared.revision, life.appeared.token) != (
                        event.revision,
                        event.token,
                    ):
                        self.strays.append(event)
                case ContenderDisappeared():
                    if life is None:
                        self.strays.append(event)
                    elif life.disappeared is None:
                        life.disappeared = event
                    elif life.disappeared.revision != event.revision:
                        self.strays.append(event)

    def find(self, lock: str, token: int | None) -> Life | None:
        """The contender with ``token``; of several with the same one, the first."""
        return None if token is None else self._by_token.get((lock, token))

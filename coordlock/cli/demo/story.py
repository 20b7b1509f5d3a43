"""What the demo's stories have in common: they react to what the workers report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.demo.crew import Crew, Event
from coordlock.cli.demo.timeline import Timeline
from coordlock.client import Client
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.settings import Settings

__all__ = ["Story", "is_leased"]


def is_leased(settings: Settings) -> bool:
    """Whether the service's sessions expire. Raises `ConfigurationError` if it has no tokens."""
    capabilities = backend_for_scheme(settings.scheme).capabilities
    if not capabilities.fenced:
        raise ConfigurationError(
            f"{settings.scheme}:// has no tokens, by which this demo's ledger refuses stale "
            "writes: `coordlock demo redlock` shows what happens without them"
        )
    return capabilities.leased


class Story(ABC):
    """One story about one lock; ``run`` tells it from others that go on at the same time."""

    def __init__(
        self,
        crew: Crew,
        client: Client,
        timeline: Timeline,
        lock: str,
        *,
        leased: bool,
        run: str = "",
    ) -> None:
        #: How often which event happened.
        self.counts: Counter[str] = Counter()
        self._crew = crew
        self._client = client
        self._timeline = timeline
        self._lock = lock
        self._leased = leased
        self._run = run
        #: Since what, and when, the lock is waited for.
        self._waiting_for: tuple[str, float] | None = None

    @abstractmethod
    def go_on(self, event: Event) -> None:
        """Show ``event``, and do what comes next."""

    def _dated(self, holds: Event) -> Event:
        """The event of a new holder, with the time since what it waited for."""
        if self._waiting_for is None:
            return holds
        since, at = self._waiting_for
        self._waiting_for = None
        return holds | {"after": round(holds["at"] - at, 6), "since": since}

    def _freeze(self, halfway: Event) -> None:
        """Stop the worker that is ``halfway``."""
        at = self._crew.freeze(halfway["worker"], self._run)
        self._tell("frozen", halfway["worker"], at, token=halfway["token"])
        self._waiting_for = "the freeze", at

    def _evict(self, frozen: str, token: int) -> None:
        """Remove the frozen holder, which no lease of its own removes."""
        queue = self._client.admin.contenders(self._lock)
        holder = next(one for one in queue if one.holding)
        self._tell("keeps", "the queue", holder=holder.owner.label if holder.owner else "")
        at = SYSTEM_CLOCK.now()
        self._client.admin.evict(holder)
        self._tell("evicted", frozen, at, token=token)
        self._waiting_for = "the eviction", at

    def _thaw(self, worker: str) -> None:
        self._tell("thawed", worker)
        self._crew.thaw(worker, self._run)

    def _left_over(self) -> list[str]:
        """What is wrong with the queue at the end: it is not empty."""
        left = self._client.admin.contenders(self._lock)
        return [f"{len(left)} contenders were left in the queue"] if left else []

    def _tell(self, kind: str, worker: str, at: float | None = None, **facts: object) -> None:
        self.counts[kind] += 1
        at = SYSTEM_CLOCK.now() if at is None else at
        event: Event = {"at": at, "worker": worker, "event": kind, **facts}
        self._timeline.show(event | {"run": self._run} if self._run else event)

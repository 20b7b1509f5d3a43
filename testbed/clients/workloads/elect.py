"""elect: clients campaign, publish and resign, and observe who leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordlock.model.claim import Mode
from coordlock.recipes.election import Candidate
from testbed.clients.worker import Patience, Worker
from testbed.clients.workloads.publishing import Publishing

__all__ = ["Elect"]


class Elect(Publishing):
    """Elections with the names of locks."""

    claim = Mode.EX

    def patience(self, worker: Worker) -> Patience:
        # Nobody waits for good: who leads in the end does so through quiescence.
        given = worker.patience()
        return Patience(worker.dice.uniform(2, 8)) if given == Patience() else given

    def stand(self, client: Any, name: str, mark: bytes, timeout: float | None) -> Any:
        return client.election(name).campaign(mark, timeout=timeout)

    def publish(self, grant: Any, mark: bytes) -> Any:
        return grant.publish(mark)

    def place(self, client: Any, name: str) -> Any:
        return client.election(name)

    def ask(self, place: Any) -> Callable[[], Any]:
        leader: Callable[[], Any] = place.leader
        return leader

    def state(self, told: Candidate | None) -> tuple[int, ...]:
        return () if told is None else (told.token or 0, int(told.value))

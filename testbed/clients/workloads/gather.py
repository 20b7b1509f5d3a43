"""gather: clients join groups, change their values and leave, and observe who is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordlock.model.claim import Mode
from coordlock.recipes.group import GroupView, Member
from testbed.clients.worker import Patience, Worker
from testbed.clients.workloads.publishing import Publishing

__all__ = ["Gather"]


class Gather(Publishing):
    """Groups with the names of locks."""

    claim = Mode.NL

    def patience(self, worker: Worker) -> Patience:
        # Who joins waits for nobody.
        cancelled = worker.is_async and worker.dice.random() < 0.1
        return Patience(cancelled=worker.dice.random() * 0.02 if cancelled else None)

    def stand(self, client: Any, name: str, mark: bytes, timeout: float | None) -> Any:
        return client.group(name).join(mark)

    def publish(self, grant: Any, mark: bytes) -> Any:
        return grant.publish(mark)

    def place(self, client: Any, name: str) -> Any:
        return client.group(name)

    def ask(self, place: Any) -> Callable[[], Any]:
        members: Callable[[], Any] = place.members
        return members

    def state(self, told: GroupView | tuple[Member, ...]) -> tuple[int, ...]:
        members = told.members if isinstance(told, GroupView) else told
        return tuple(number for one in members for number in (one.token or 0, int(one.value)))

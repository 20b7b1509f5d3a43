"""Backends that can do less than those that come with coordlock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import pytest
from coordlock_memory import MemoryBackend, MemoryService

import coordlock
from coordlock.backend import (
    Backend,
    Capabilities,
    ServiceInfo,
    SessionInfo,
    SessionListener,
)
from coordlock.backend.capabilities import Capability
from coordlock.errors import BackendUnavailable, SessionLost, Unsupported
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.settings import Settings
from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.capability_contract import CapabilityContract


class Unordered(Backend):
    """The abstract methods alone, which is what a service without order writes."""

    scheme = "unordered"
    capabilities = Capabilities(
        reach="process", leased=True, durable=False, ordered=False, fenced=False, one_step="all"
    )
    service: ClassVar = MemoryService()

    def __init__(self, settings: Settings) -> None:
        self._root = settings.root
        self._ttl = settings.ttl
        self._session = ""

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        return cls(settings)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        self._session = self.service.open(self._ttl, listener.lost)
        return resolved(SessionInfo(self._session, self._ttl))

    def heartbeat(self) -> Promise[float]:
        return self._ask(lambda: self.service.heartbeat(self._session))

    def describe(self) -> Promise[ServiceInfo]:
        return self._ask(lambda: ServiceInfo("unordered", ""))

    def close(self) -> Promise[None]:
        self.service.close(self._session)
        self._session = ""
        return resolved(None)

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        assert unless_blocked, "nobody waits in a queue without order"
        mine = [replace(one, queue=f"{self._root}/{one.queue}") for one in entries]
        return self._ask(lambda: self.service.enqueue(self._session, mine, unless_blocked=True))

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        mine = [replace(one, queue=f"{self._root}/{one.queue}") for one in entries]
        return self._ask(lambda: self.service.withdraw(mine))

    def _ask(self, request: Callable[[], Any]) -> Promise[Any]:
        if not self._session:
            return failed(BackendUnavailable(self.scheme, "the connection is closed"))
        try:
            return resolved(request())
        except SessionLost as lost:
            return failed(lost)


class OnRootsOfTheirOwn:
    @pytest.fixture
    def url(self, root: str, monkeypatch: pytest.MonkeyPatch) -> str:
        kind: type[Backend] = self.backend  # type: ignore[attr-defined]
        monkeypatch.setattr("coordlock.client.client.backend_for_scheme", lambda _: kind)
        return f"memory://{root}"


class TestBackendWithoutOrder(OnRootsOfTheirOwn, BackendContract):
    backend = Unordered


class TestCapabilitiesWithoutOrder(OnRootsOfTheirOwn, CapabilityContract):
    backend = Unordered


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[Capability], None]:
    """Takes a capability away from the memory backend."""
    can = MemoryBackend.capabilities
    return lambda lacking: monkeypatch.setattr(
        MemoryBackend, "capabilities", replace(can, **cast(dict[str, Any], {lacking: False}))
    )


class Lacking(CapabilityContract):
    lacking: ClassVar[Capability]
    backend = MemoryBackend

    @pytest.fixture
    def url(self, root: str, without: Callable[[Capability], None]) -> str:
        without(self.lacking)
        return f"memory://{root}"


class TestCapabilitiesWithoutSets(Lacking):
    lacking = "sets"


class TestCapabilitiesWithoutPublishing(Lacking):
    lacking = "publishing"


class TestCapabilitiesWithoutData(Lacking):
    lacking = "data"


def test_a_grant_is_verified_where_the_service_keeps_no_data(
    without: Callable[[Capability], None],
) -> None:
    without("data")
    with coordlock.connect("memory://verified") as client, client.lock("a") as grant:
        grant.verify()


def test_a_grant_of_one_name_of_several_has_no_token_where_the_service_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capabilities = replace(MemoryBackend.capabilities, fenced=False)
    with coordlock.connect("memory://") as client, client.multi_lock(["a"]) as grant:
        monkeypatch.setattr(client._engine.backend, "capabilities", capabilities)
        for attribute in ("token", "sequencer"):
            for bearer in (grant, grant.parts["a"]):
                with pytest.raises(Unsupported, match="has no token"):
                    getattr(bearer, attribute)
        assert grant.claim is Mode.EX

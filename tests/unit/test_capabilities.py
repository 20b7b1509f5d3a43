"""Backends that can do less than those that come with coordlock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest
from coordlock_memory import MemoryBackend

import coordlock
from coordlock.backend.capabilities import Capability
from coordlock.errors import Unsupported
from coordlock.model.claim import Mode
from coordlock.testing.capability_contract import CapabilityContract


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

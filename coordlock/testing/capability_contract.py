"""What a service lacks is refused by name, as soon as it is asked for.

Subclass `CapabilityContract` as `coordlock.testing.lock_contract.LockContract`, for every backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from coordlock.backend import Capability
from coordlock.backend.capabilities import reason_for
from coordlock.errors import Unsupported
from coordlock.testing.client_suite import ClientSuite

__all__ = ["CapabilityContract"]

Make = Callable[[Any], object]

#: What clients make, and what the service must be capable of for that.
MADE: Final[dict[str, tuple[Make, tuple[Capability, ...]]]] = {
    "lock": (lambda client: client.lock("a"), ()),
    "read_lock": (lambda client: client.read_lock("a"), ("ordered",)),
    "write_lock": (lambda client: client.write_lock("a"), ()),
    "reentrant_lock": (lambda client: client.reentrant_lock("a"), ()),
    "upgradeable_lock": (lambda client: client.upgradeable_lock("a"), ("ordered", "publishing")),
    "semaphore": (lambda client: client.semaphore("a", 2), ("ordered",)),
    "multi_lock": (lambda client: client.multi_lock(["a", "b"]), ("sets",)),
    "tree_lock": (lambda client: client.tree_lock("a/b"), ("ordered", "sets")),
    "group": (lambda client: client.group("a"), ("publishing",)),
    "election": (lambda client: client.election("a"), ("publishing",)),
    "barrier": (lambda client: client.barrier("a", 2), ("data", "publishing")),
    "double_barrier": (lambda client: client.double_barrier("a", 2), ("data", "publishing")),
    "counter": (lambda client: client.counter("a"), ("data",)),
    "latch": (lambda client: client.latch("a", 2), ("data",)),
    "gate": (lambda client: client.gate("a"), ("data",)),
    "value": (lambda client: client.value("/a/b"), ("data",)),
    "values": (lambda client: client.values("/a"), ("data",)),
    "work_queue": (lambda client: client.work_queue("a"), ("data",)),
}


class CapabilityContract(ClientSuite):
    """The suite."""

    needs = ()

    @pytest.mark.parametrize("name", MADE)
    def test_what_the_service_cannot_do_is_refused_when_it_is_made(
        self, client: Any, name: str
    ) -> None:
        make, needs = MADE[name]
        lacking = [one for one in needs if not getattr(self.backend.capabilities, one)]
        if not lacking:
            make(client)
            return
        with pytest.raises(Unsupported, match=re.escape(reason_for(lacking[0]))) as refused:
            make(client)
        assert self.backend.scheme in str(refused.value)

    def test_queues_are_shown_by_services_that_keep_them(self, client: Any) -> None:
        for ask in (lambda: client.admin.contenders("a"), client.admin.names):
            if self.backend.capabilities.ordered:
                assert list(ask()) == []
            else:
                with pytest.raises(Unsupported, match=re.escape(reason_for("ordered"))):
                    ask()

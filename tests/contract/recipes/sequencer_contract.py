"""What the text form of a token promises on every backend, sync and async.

Subclass `SequencerContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

from typing import Any

import pytest

import coordlock
from coordlock import Mode
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually
from coordlock.types import Permit

__all__ = ["SequencerContract"]


class SequencerContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    def test_another_client_verifies_a_token_by_its_text(self, client: Any, other: Any) -> None:
        with client.lock("a b/\u00e9:1", mode=Mode.PR) as grant:
            text = grant.sequencer
            assert text.isascii()
            assert " " not in text
            member = other.admin.verify_sequencer(text)
            assert (member.token, member.claim, member.holding) == (grant.token, Mode.PR, True)
            with pytest.raises(coordlock.LockLost, match="not a lock in mode EX"):
                other.admin.verify_sequencer(text.replace("rlock", "lock"))
            with client.lock("a b/\u00e9:1", mode=Mode.PR) as later:
                assert other.admin.verify_sequencer(later.sequencer).position == 1
        for ended in (text, later.sequencer):
            with pytest.raises(coordlock.LockLost, match="no contender"):
                other.admin.verify_sequencer(ended)
        with client.semaphore("s", 2) as permit:
            assert other.admin.verify_sequencer(permit.sequencer).claim == Permit(2)

    def test_a_token_of_a_waiter_is_none_of_a_holder(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with client.lock("a") as grant:
            waiting = start(other.lock("a").acquire, BOUND)
            eventually(lambda: len(client.admin.contenders("a")) == 2)
            [_, waiter] = client.admin.contenders("a")
            with pytest.raises(coordlock.LockLost, match="waits for others"):
                client.admin.verify_sequencer(f"a:lock:{waiter.token}")
            assert other.admin.verify_sequencer(grant.sequencer).holding
        assert client.admin.verify_sequencer(waiting.result(BOUND).sequencer).holding

    def test_several_locks_have_a_text_each(self, client: Any, other: Any) -> None:
        with client.multi_lock(["a", "b"]) as both:
            with pytest.raises(coordlock.errors.Unsupported, match=r"grant\.parts\['a'\]"):
                _ = both.sequencer
            for name in "ab":
                part = both.parts[name]
                assert other.admin.verify_sequencer(part.sequencer).token == part.token
        with client.tree_lock("eu/orders") as node:
            assert node.sequencer.startswith("eu%2Forders:lock:")
            assert other.admin.verify_sequencer(node.sequencer).holding

    def test_what_is_no_text_of_a_token_is_refused(self, client: Any) -> None:
        for text in (
            "",
            "a",
            "a:lock",
            "a:lock:0",
            "a:lock:-1",
            "a b:lock:1",
            "a:what:1",
            "a:lock:1x",
            "a" * 1000 + ":lock:1",
        ):
            with pytest.raises(coordlock.errors.InvalidToken, match=r"grant\.sequencer"):
                client.admin.verify_sequencer(text)
        with pytest.raises(TypeError):
            client.admin.verify_sequencer(17)

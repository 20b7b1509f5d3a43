"""Candidates on a bad day, those who are elected, and those who observe them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from coordlock.backend import Queue
from coordlock.errors import LockLost
from coordlock.locks.grant import Grant
from coordlock.model.contender import Contender, Snapshot
from coordlock.recipes.election import Candidate, Election
from coordlock.recipes.term import Term
from tests.simulation.bad_day import HONEST, PARTIES, delays, indices
from tests.simulation.contention import Contention, is_over
from tests.simulation.followers import Followers
from tests.simulation.world import Call, Party

__all__ = ["Electing"]


class Electing(Contention):
    """Four processes that campaign, publish and resign, and observe who leads.

    Besides what holds for all that want one lock: what an observer shows is a leader that the
    service had, with a value that it had, and never one of before. A leader that publishes after
    a later one was elected is refused.

    In the end: all observers show the leader, with what it has published last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.followers = Followers(self.world.service, Queue("q"), leader_of)
        self.values = 0
        #: Who publishes what, and the token of the newest term that was known then.
        self.publishing: list[tuple[Grant, bytes, int, Call[None]]] = []
        #: What each leader was told last that it has published.
        self.published: dict[Grant, bytes] = {}
        service: Any = self.world.service
        self.do_publish: Callable[[Contender, bytes, int], None] = service.publish
        service.publish = self.publish
        self.late: list[Contender] = []

    def publish(self, contender: Contender, value: bytes, version: int) -> None:
        """The service's, which is looked at here."""
        self.do_publish(contender, value, version)
        if contender.order < self.newest["q"]:
            self.late.append(contender)

    @initialize()
    def connect(self) -> None:
        super().connect()
        for party in self.world.parties[:PARTIES]:
            self.followers.add(election_of(party).observe())

    def ask(self, party: Party, what: int, timeout: float | None) -> Call[Any]:
        return party.run(election_of(party)._campaign(self.value(), timeout=timeout))

    def value(self) -> bytes:
        self.values += 1
        return b"%d" % self.values

    @rule(which=indices, again=st.integers(1, 3), seconds=delays)
    def publish_value(self, which: int, again: int, seconds: float) -> None:
        leading = [(party, grant) for party, grant in self.unreleased if not party.paused]
        if leading:
            party, term = leading[which % len(leading)]
            assert isinstance(term, Term)
            for _ in range(again):
                value = self.value()
                call = party.run(term._publish(value))
                self.publishing.append((term, value, self.newest["q"], call))
        self.world.advance(seconds)

    def check(self) -> None:
        super().check()
        self.followers.check()
        assert self.late == [], "published after a later term had begun"
        for term, value, newest, call in [one for one in self.publishing if one[-1].done]:
            if call.error is None:
                self.published[term] = value
                assert term.token >= newest, "published after a later one was elected"
            else:
                assert isinstance(call.error, (*HONEST, LockLost)), call.error
        self.publishing = [one for one in self.publishing if not one[-1].done]

    def get_over(self) -> None:
        self.world.advance(60.0)
        assert self.publishing == [], "somebody was never answered"
        self.followers.check_present()
        published = {one.token: one.value or b"" for one in self.world.queue()}
        for term in [one for _, one in self.held if not is_over(one) and one in self.published]:
            # Or what came after that, and was not answered.
            assert int(published[term.token]) >= int(self.published[term])
        super().get_over()
        assert self.followers.present is None
        self.followers.check_present()
        self.followers.close()


def election_of(party: Party) -> Election:
    return Election(party.access, "q")


def leader_of(snapshot: Snapshot) -> Candidate | None:
    for first in snapshot.contenders:
        return Candidate(first.id, first.value or b"", first.token)
    return None

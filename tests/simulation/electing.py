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
    """Four processes that campaign, proclaim and resign, and observe who leads.

    Besides what holds for all that want one lock: what an observer shows is a leader that the
    service had, with a proposal that it had, and never one of before. A leader that proclaims after
    a later one was elected is refused.

    In the end: all observers show the leader, with what it has proclaimed last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.followers = Followers(self.world.service, Queue("q"), leader_of)
        self.proposals = 0
        #: Who proclaims what, and the token of the newest term that was known then.
        self.proclaiming: list[tuple[Grant, bytes, int, Call[None]]] = []
        #: What each leader was told last that it has proclaimed.
        self.proclaimed: dict[Grant, bytes] = {}
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
        return party.run(election_of(party)._campaign(self.proposal(), timeout=timeout))

    def proposal(self) -> bytes:
        self.proposals += 1
        return b"%d" % self.proposals

    @rule(which=indices, again=st.integers(1, 3), seconds=delays)
    def proclaim(self, which: int, again: int, seconds: float) -> None:
        leading = [(party, grant) for party, grant in self.unreleased if not party.paused]
        if leading:
            party, term = leading[which % len(leading)]
            assert isinstance(term, Term)
            for _ in range(again):
                proposal = self.proposal()
                call = party.run(term._proclaim(proposal))
                self.proclaiming.append((term, proposal, self.newest["q"], call))
        self.world.advance(seconds)

    def check(self) -> None:
        super().check()
        self.followers.check()
        assert self.late == [], "published after a later term had begun"
        for term, proposal, newest, call in [one for one in self.proclaiming if one[-1].done]:
            if call.error is None:
                self.proclaimed[term] = proposal
                assert term.token >= newest, "proclaimed after a later one was elected"
            else:
                assert isinstance(call.error, (*HONEST, LockLost)), call.error
        self.proclaiming = [one for one in self.proclaiming if not one[-1].done]

    def get_over(self) -> None:
        self.world.advance(60.0)
        assert self.proclaiming == [], "somebody was never answered"
        self.followers.check_present()
        published = {one.token: one.value or b"" for one in self.world.queue()}
        for term in [one for _, one in self.held if not is_over(one) and one in self.proclaimed]:
            # Or what came after that, and was not answered.
            assert int(published[term.token]) >= int(self.proclaimed[term])
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

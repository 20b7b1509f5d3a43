"""The rule of fences against the rule of admission: whom it must let pass, and whom it must not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import StaleToken
from coordlock.fencing import FencingToken, Marks
from coordlock.model.admission import holders
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot

#: Held together, by the published table of the lock manager; the modes that a fence takes.
TOGETHER = {(Mode.PR, Mode.PR)}
FENCED = [Mode.EX, Mode.PW, Mode.PR]


@dataclass
class Queue:
    """A lock's history: who waits, who holds, and who did and may still act, not knowing better."""

    waiting: list[Contender] = field(default_factory=list)
    granted: list[Contender] = field(default_factory=list)
    used: list[Contender] = field(default_factory=list)
    tokens: int = 0

    def enqueue(self, mode: Mode, gap: int) -> None:
        self.tokens += gap
        self.waiting.append(
            Contender(str(self.tokens), f"q/{self.tokens}", mode, self.tokens, self.tokens)
        )
        self.admit()

    def depart(self, which: int) -> None:
        """Somebody leaves: it has released, or its session has ended, or it gave up."""
        if self.waiting:
            del self.waiting[which % len(self.waiting)]
            self.admit()

    def admit(self) -> None:
        admitted = holders(Snapshot("q", tuple(self.waiting)))
        self.granted += [
            one for one in self.waiting if one.id in admitted and one not in self.granted
        ]


def token_of(one: Contender) -> FencingToken:
    assert one.token is not None
    return FencingToken(one.token, shared=one.claim is Mode.PR)


def conflict(one: Contender, other: Contender) -> bool:
    return one != other and (one.claim, other.claim) not in TOGETHER


#: Not too many in the queue, so that grants follow each other.
steps = st.lists(
    st.tuples(
        st.sampled_from(["enqueue", "depart", "use", "use"]),
        st.integers(0, 3),
        st.integers(1, 3),
    ),
    min_size=20,
    max_size=60,
)


@given(steps)
def test_exactly_those_are_refused_whom_a_newer_conflicting_grant_has_overtaken(
    history: list[tuple[str, int, int]],
) -> None:
    """A holder is never refused; one of the past is, once somebody acted who came after it."""
    queue, marks = Queue(), Marks()
    for step, which, gap in history:
        if step == "enqueue":
            queue.enqueue(FENCED[which % 3], gap)
        elif step == "depart":
            queue.depart(which)
        elif queue.granted:
            one = queue.granted[-1 - which % len(queue.granted)]
            overtaken = [
                other for other in queue.used if other.order > one.order and conflict(one, other)
            ]
            if not overtaken:
                marks = marks.raised("alice", token_of(one))
                queue.used.append(one)
                continue
            assert one not in queue.waiting
            with pytest.raises(StaleToken) as stale:
                marks.raised("alice", token_of(one))
            assert stale.value.token == one.token
            assert stale.value.newest == max(other.token or 0 for other in overtaken)


@given(steps)
def test_marks_are_the_newest_tokens_that_passed(history: list[tuple[str, int, int]]) -> None:
    """Of any numbers, in any order: they only grow, and a refusal changes nothing."""
    marks = Marks()
    passed: dict[bool, list[int]] = {True: [0], False: [0]}
    for _, which, gap in history:
        token = FencingToken(which + 1, shared=gap == 1)
        if marks.admits(token):
            marks = marks.raised("alice", token)
            passed[token.shared].append(token.value)
        else:
            with pytest.raises(StaleToken):
                marks.raised("alice", token)
        assert marks == Marks(max(passed[False]), max(passed[True]))

"""Znode names and their order, and what kazoo's recipes make of them.

What Curator's make of them is shown by Curator: ``tests/integration/test_interop_curator.py``.
"""

from __future__ import annotations

import re

import pytest
from coordlock_zookeeper import nodes
from hypothesis import given
from hypothesis import strategies as st
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.model.names import unescape

GUID = "0123456789abcdef0123456789abcdef"
CLAIMS = [*Mode, Permit(1), Permit(3), Permit(10_000)]

claims = st.one_of(st.sampled_from(Mode), st.builds(Permit, st.integers(1, 10_000)))


def printed(sequence: int) -> str:
    """What the server appends: Java's ``%010d``."""
    return f"{sequence:010d}"


@given(st.text(min_size=1))
def test_a_queues_znode_tells_its_name(name: str) -> None:
    child = nodes.Layout("").queue(name).removeprefix("/")
    assert "/" not in child
    assert unescape(child) == name


@given(st.uuids(), claims, st.sampled_from(nodes.STYLES), st.integers(0, 2**31 - 1))
def test_a_name_tells_its_id_claim_and_sequence(
    id: object, claim: Claim, style: nodes.Style, sequence: int
) -> None:
    guid = getattr(id, "hex", "")
    child = nodes.stem(guid, claim, style) + printed(sequence)
    assert nodes.sequence_of(child) == sequence
    seen = nodes.contender("/root/q", child)
    assert (seen.id, seen.claim) == (guid, claim)
    assert seen.key == f"/root/q/{child}"
    assert seen.order == sequence


@pytest.mark.parametrize("style", nodes.STYLES)
def test_a_name_tells_that_its_contender_passes_its_lock_on(style: nodes.Style) -> None:
    child = nodes.stem(GUID, Mode.EX, style, announces_release=True) + printed(7)
    assert nodes.announces_release(child)
    seen = nodes.contender("/q", child)
    assert (seen.id, seen.claim, seen.order) == (GUID, Mode.EX, 7)
    for other in CLAIMS:
        assert not nodes.announces_release(nodes.stem(GUID, other, style) + printed(7))
        assert other is Mode.EX or not nodes.announces_release(
            nodes.stem(GUID, other, style, announces_release=True) + printed(7)
        )


@pytest.mark.parametrize("child", ["x__ex__lock__0000000001", f"_c_{GUID[:8]}-ex-lock-0000000001"])
def test_what_another_program_names_like_that_passes_nothing_on(child: str) -> None:
    assert not nodes.announces_release(child)


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_sequence_tells_a_place_until_the_counter_is_spent(sequence: int) -> None:
    assert nodes.is_spent(sequence) == (sequence < 0 or sequence == 2**31 - 1)


@pytest.mark.parametrize(
    ("child", "sequence"),
    [
        ("_c_0a-lock-0000000007", 7),
        ("_c_0a-lock-1500000000", 1_500_000_000),
        ("x_-0000000007", 7),
        ("x__lock__2147483647", 2**31 - 1),
        ("0000000003", 3),
        ("-000000003", None),
        ("leases", None),
        ("x-123", None),
        ("x__lock__000000001", None),
        ("x__lock__000000000\N{ARABIC-INDIC DIGIT ONE}", None),
        ("", None),
    ],
)
def test_sequences_of_all_sorts_of_children(child: str, sequence: int | None) -> None:
    assert nodes.sequence_of(child) == sequence


@pytest.mark.parametrize(
    "stem",
    [
        *(
            "x__",
            "x__ex__rlock__",
            "x__other__",
            "x__new__rlock__",
            "__rlock",
            "x__permit0__lock__",
            "x__nl__lock__",
        ),
        *("_c_x-other-", "_c_x-pw-rlock-", "_c_x-permit0-lock-", "_c_x-__OTHR__", "_c_-lock-"),
    ],
)
def test_an_unknown_marker_counts_as_exclusive(stem: str) -> None:
    child = f"{stem}0000000001"
    seen = nodes.contender("/q", child)
    assert (seen.id, seen.claim) == (child, Mode.EX)


def test_a_twin_of_the_own_contender_is_called_by_its_full_name() -> None:
    stems = (GUID, "f" * 32, GUID)
    queue = [
        nodes.contender("/q", f"{id}__lock__{printed(number)}") for number, id in enumerate(stems)
    ]
    me = queue[-1]
    found, _ = nodes.nearest(queue, me, conflicting=True)
    assert [other.id for other in found] == [queue[0].key, "f" * 32, GUID]


class TestKazoosRecipes:
    """kazoo's recipes wait for whatever coordlock's matrix has them wait for, but for one."""

    @staticmethod
    def waits_for(recipe: type[Lock], claim: Claim) -> bool:
        """Whether a recipe takes a contender of ``claim`` for one to wait for."""
        pattern = "|".join(recipe._EXCLUDE_NAMES)  # as Lock.__init__ builds its expression
        child = nodes.stem(GUID, claim) + printed(1)
        return re.search(rf"(?:{pattern})(-?\d{{10}})$", child) is not None

    @pytest.mark.parametrize("claim", CLAIMS, ids=str)
    @pytest.mark.parametrize(
        ("recipe", "mode"), [(WriteLock, Mode.EX), (ReadLock, Mode.PR), (Lock, Mode.EX)]
    )
    def test_they_are_as_careful_as_the_matrix(
        self, recipe: type[Lock], mode: Mode, claim: Claim
    ) -> None:
        conflict = isinstance(claim, Permit) or mode.conflicts(claim)
        if recipe is Lock and claim in (Mode.PR, Mode.CR):
            # kazoo's plain Lock ignores readers, kazoo's own too.
            assert conflict
            assert not self.waits_for(recipe, claim)
        else:
            assert self.waits_for(recipe, claim) == conflict


class TestPart:
    @given(
        st.lists(
            st.tuples(claims, st.sampled_from(["kazoo", "curator"]), st.booleans()), max_size=12
        ),
        st.sampled_from(Mode),
    )
    def test_all_that_may_be_in_the_way(
        self, others: list[tuple[Claim, nodes.Style, bool]], mine: Mode
    ) -> None:
        children = []
        for number, (claim, style, is_odd) in enumerate(others):
            id = "--__cr__lock__".ljust(32, "0") if is_odd else f"{number:032x}"
            children.append(nodes.stem(id, claim, style) + printed(number))
        own = nodes.stem(GUID, mine) + printed(len(others))
        me = Contender(GUID, f"/q/{own}", mine, len(others), token=9)
        queue = nodes.in_order("/q", [own, *children])
        every, _ = nodes.nearest(queue, None)
        found, omitted = nodes.nearest(queue, me, conflicting=True)
        assert omitted == 0
        assert found[-1] is me
        in_the_way = [
            one
            for one in every[:-1]
            if not isinstance(one.claim, Mode) or mine.conflicts(one.claim)
        ]
        assert found == (*in_the_way, me)

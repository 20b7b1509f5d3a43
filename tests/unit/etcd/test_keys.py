from __future__ import annotations

import pytest
from coordlock_etcd.keys import Layout, prefix_end
from coordlock_etcd.requests import keys_under
from hypothesis import given
from hypothesis import strategies as st

from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Entry, Owner
from coordlock.model.names import MAX_NAME_BYTES

GUID = "0123456789abcdef0123456789abcdef"
LAYOUT = Layout.below("/payments")
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_NAME_BYTES // 4)


def entry(name: str, claim: Claim = Mode.EX) -> Entry:
    return Entry(name, GUID, claim, Owner("h", 1))


def test_a_contender_is_a_key_below_the_queue_as_go_has_it() -> None:
    assert LAYOUT.key(entry("orders")) == f"/payments/orders/lock-{GUID}".encode()
    assert LAYOUT.queue("orders") == b"/payments/orders/"


@pytest.mark.parametrize(
    ("root", "leading_slash", "queue"),
    [
        ("/", True, b"/orders/"),
        ("/", False, b"orders/"),
        ("/payments", False, b"payments/orders/"),
    ],
)
def test_the_root_may_be_the_top_and_keys_may_begin_without_a_slash(
    root: str, leading_slash: bool, queue: bytes
) -> None:
    layout = Layout.below(root, leading_slash=leading_slash)
    assert layout.queue("orders") == queue
    assert layout.key(entry("orders")).startswith(queue + b"lock-")
    assert layout.name(queue + b"x") == "orders"
    assert layout.contender("orders", queue + b"x")[0] == "x"


def test_a_key_with_a_leading_slash_is_in_no_queue_of_a_layout_without() -> None:
    assert Layout.below("/", leading_slash=False).name(b"/orders/x") is None


def test_the_range_of_the_empty_prefix_is_that_of_all_keys() -> None:
    request = keys_under(Layout.below("/", leading_slash=False).prefix)
    assert (request.key, request.range_end) == (b"\0", b"\0")


@given(name=names, claim=st.sampled_from([*Mode, Permit(1), Permit(10_000)]))
def test_a_key_tells_its_queue_its_claim_and_its_id(name: str, claim: Claim) -> None:
    key = LAYOUT.key(entry(name, claim))
    assert LAYOUT.name(key) == name
    assert LAYOUT.contender(name, key) == (GUID, claim)


@given(one=names, other=names)
def test_no_key_is_in_the_range_of_another_queue(one: str, other: str) -> None:
    key, start = LAYOUT.key(entry(one)), LAYOUT.queue(other)
    assert (start <= key < prefix_end(start)) is (one == other)


@pytest.mark.parametrize(
    "rest",
    [b"694d8f2a3b4c5d6e", b"lock-694d", f"lock-{GUID}-2".encode(), f"a/lock-{GUID}".encode(), b""],
)
def test_keys_of_others_count_as_exclusive_under_their_own_name(rest: bytes) -> None:
    assert LAYOUT.contender("q", LAYOUT.queue("q") + rest) == (rest.decode(), Mode.EX)


def test_an_unknown_marker_counts_as_exclusive_too() -> None:
    key = LAYOUT.queue("q") + f"future9-{GUID}".encode()
    assert LAYOUT.contender("q", key) == (GUID, Mode.EX)


def test_a_key_need_not_be_text() -> None:
    id, claim = LAYOUT.contender("q", LAYOUT.queue("q") + b"\xff\x00")
    assert (id, claim) == ("\\xff\x00", Mode.EX)
    assert LAYOUT.name(b"/payments/\xff/x") is None


def test_keys_that_are_in_no_queue_have_no_name() -> None:
    assert LAYOUT.name(b"/payments/loose") is None
    assert LAYOUT.name(b"/payments/not escaped/x") is None


@pytest.mark.parametrize(
    ("where", "leading_slash", "key", "end"),
    [
        ("/f/", True, b"/f/", b"/f0"),
        ("/f/", False, b"f/", b"f0"),
        ("/f", False, b"f", b""),
        ("/", True, b"/", b"0"),
        ("/", False, b"\0", b"\0"),
    ],
)
def test_a_folder_is_where_the_keys_begin_with_or_without_a_slash(
    where: str, leading_slash: bool, key: bytes, end: bytes
) -> None:
    assert Layout.below("/r", leading_slash=leading_slash).range_of(where) == (key, end)


@pytest.mark.parametrize(
    ("where", "key", "is_there"),
    [
        ("/f/", b"/f/a", True),
        ("/f/", b"/f/\xff", True),
        ("/f/", b"/f/below/a", False),
        ("/f/", b"/f/", False),
        ("/f/a", b"/f/a", True),
        ("/f/a", b"/f/ab", False),
    ],
)
def test_a_folder_has_the_keys_that_lie_directly_in_it(
    where: str, key: bytes, is_there: bool
) -> None:
    assert Layout.below("/r").is_at(where, key) is is_there


@pytest.mark.parametrize("leading_slash", [True, False])
def test_a_key_that_is_no_text_can_be_named(leading_slash: bool) -> None:
    layout = Layout.below("/r", leading_slash=leading_slash)
    raw = b"/f/\xff" if leading_slash else b"f/\xff"
    assert layout.at(layout.path(raw)) == raw

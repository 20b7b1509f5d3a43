from __future__ import annotations

import pytest

from coordlock.backend import Listing, VersionedValue
from coordlock.errors import BackendError, NameConflict
from coordlock.work.layout import Layout
from coordlock.work.records import Claim, Content, Tail, check_mark, entry_in

LAYOUT = Layout("/root", "q")


def read(data: bytes) -> Tail:
    return Tail.decode(LAYOUT, VersionedValue(data, 3))


def test_a_tail_keeps_what_a_newer_release_has_added() -> None:
    written = Tail().encode().removesuffix(b"}") + b',"new":["later"]}'
    tail = read(written).after("one", 1)
    assert b'"new":["later"]' in tail.encode()
    assert (read(tail.encode()).next, tail.version) == (2, 4)


def test_the_tail_has_the_numbers_of_each_producers_last_put() -> None:
    tail = Tail().after("one", 3)
    assert (tail.first_of("one", 1), tail.first_of("two", 1)) == (1, None)
    for _ in range(100):
        tail = tail.after("two", 1)
    assert (tail.first_of("one", 1), tail.first_of("one", 4)) == (1, None)
    assert (tail.first_of("two", 4), tail.first_of("two", 104)) == (103, None)
    assert tail.next == 104


def test_a_tail_that_may_have_forgotten_a_producer_says_so() -> None:
    tail = Tail().after("one", 1)
    for number in range(63):
        tail = tail.after(f"other {number}", 1)
    assert tail.first_of("one", 1) == 1
    tail = tail.after("another", 1)
    assert len(tail.puts) == 64
    with pytest.raises(LookupError, match="64 other producers have put since"):
        tail.first_of("one", 1)
    # One of those that are known put before the attempt, and would have been forgotten first.
    assert tail.first_of("one", 3) is None


def test_a_later_format_is_refused() -> None:
    later = VersionedValue(b'{"format": 2}', 1)
    with pytest.raises(NameConflict, match="another release"):
        read(later.data)
    with pytest.raises(NameConflict, match="another release"):
        check_mark(LAYOUT, Listing({LAYOUT.mark: later}, 1))


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b"{}", b'{"format": 1}'])
def test_what_coordlock_has_not_written_is_refused(data: bytes) -> None:
    with pytest.raises(BackendError, match="not as coordlock writes it"):
        read(data)
    for kind in (Claim, Content):
        with pytest.raises(BackendError, match="'/key' is not as coordlock writes it"):
            kind.decode("/key", VersionedValue(data, 1))


@pytest.mark.parametrize("name", ["", "x", "1.2", "1.0.2.3.4.5.6", "1.0.x.0.0.0"])
def test_a_key_that_names_no_entry_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match="not as coordlock writes it"):
        entry_in(f"/root/{name}")


def test_records_are_read_as_they_were_written_and_unknown_fields_are_ignored() -> None:
    claim = Claim("/worker", 3)
    for data in (claim.encode(), claim.encode()[:-1] + b', "new": 1}'):
        assert Claim.decode("/key", VersionedValue(data, 1)) == claim
    content = Content(1.5, b"\n{}\n")
    assert Content.decode("/key", VersionedValue(content.encode(), 1)) == content

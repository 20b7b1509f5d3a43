from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Owner, Snapshot

owners = st.builds(
    Owner,
    host=st.text(),
    pid=st.integers(0, 2**31),
    label=st.text(),
    since=st.floats(0, 1e12),
)
#: What other programs may have written.
foreign = st.one_of(
    st.binary(),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {
            "host": st.text() | st.none(),
            "pid": st.floats() | st.integers() | st.text() | st.none(),
            "label": st.text() | st.lists(st.text()),
            "since": st.floats() | st.text() | st.none(),
        }
    ).map(lambda value: json.dumps(value).encode()),
)


@given(owners, st.binary())
def test_an_owner_is_read_back_as_it_was_written(owner: Owner, value: bytes) -> None:
    assume(owner.host)
    assert Owner.decode(owner.encode(value)) == owner
    assert Owner.published(owner.encode(value)) == value


def test_an_owner_in_a_newer_format_is_read_and_what_it_publishes_is_not() -> None:
    data = Owner("host", 7).encode(b"value").replace(b'"format": 1', b'"later": 3, "format": 2')
    assert Owner.decode(data) == Owner("host", 7)
    assert Owner.published(data) == b""


@given(st.text().filter(str.strip))
def test_what_is_published_without_an_owner_stands_alone(proposal: str) -> None:
    value = proposal.encode("utf-8", "replace")
    assert Owner("", 0).encode(value) == value
    assert Owner.published(value) == value
    assert Owner.decode(value) == Owner("", 0, value.decode().strip())


@given(foreign)
def test_data_of_other_programs_is_never_an_error(data: bytes) -> None:
    owner = Owner.decode(data)
    assert owner is None or isinstance(str(owner), str)


@pytest.mark.parametrize(
    "data",
    [
        b'{"host":"h","pid":1e999,"label":"","since":0}',
        b'{"host":"h","pid":NaN,"label":"","since":0}',
        b'{"host": "h", "pid": 1e999, "label": "", "since": 0}',
        b'{"host": "h", "pid": 1, "label": "", "since": }',
        b'{"host": "h", "pid": 1, "label": "", "since": 5x}',
        b'{"host":"h","pid":1,"label":"","since":' + b"9" * 400 + b"}",
        b"[" * 100_000,
        b"9" * 5000,
        b"\xff\xfe",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_hostile_data_becomes_a_label_at_worst(data: bytes) -> None:
    assert isinstance(Owner.decode(data), Owner)


def test_data_that_is_no_owner_becomes_the_label() -> None:
    assert Owner.decode(b"worker 7\n") == Owner("", 0, "worker 7")
    assert Owner.decode(b"") is None
    assert Owner.decode(b"  \n") is None


def test_a_label_that_is_not_utf_8_can_be_stored() -> None:
    # As os.environ and sys.argv give it.
    owner = Owner("host", 1, b"\xff".decode("utf-8", "surrogateescape"))
    assert Owner.decode(owner.encode()) == owner


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (Owner("host", 7), "host:7"),
        (Owner("host", 7, "nightly"), "host:7 nightly"),
        (Owner("", 0, "kazoo"), "kazoo"),
    ],
)
def test_an_owner_reads_as_host_pid_and_label(owner: Owner, text: str) -> None:
    assert str(owner) == text


def contender(order: int) -> Contender:
    return Contender(id=str(order), key=f"q/{order}", claim=Mode.EX, order=order, token=order)


def test_departed_contenders_are_taken_out_by_key() -> None:
    snapshot = Snapshot("q", tuple(contender(n) for n in range(4)), revision=9, omitted=2)
    rest = snapshot.without([contender(1), contender(7)])
    assert [one.order for one in rest.contenders] == [0, 2, 3]
    assert (rest.revision, rest.omitted) == (9, 2)
    assert len(snapshot.contenders) == 4


def test_a_contender_is_found_by_its_id_and_has_others_before_it() -> None:
    snapshot = Snapshot("q", tuple(contender(n) for n in range(4)))
    assert snapshot.find("2") == contender(2)
    assert snapshot.find("9") is None
    assert [one.order for one in snapshot.before(contender(2))] == [0, 1]

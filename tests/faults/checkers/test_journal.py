from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from select import PIPE_BUF

import pytest
from coordlock_faults import events
from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    Act,
    Event,
    FaultBegan,
    FinalSet,
    Granted,
    Kind,
    LossSignalled,
    OperationOffered,
    Quiesced,
    Reach,
    ReleaseSent,
    RunBegan,
    Surveyed,
)
from coordlock_faults.journal import Journal, MalformedHistory, read
from coordlock_faults.record import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from coordlock.model.claim import Mode, Permit
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.testing.waiting import eventually
from tests.faults.checkers.reference import MODES, PERMITS, Reference

claims = st.sampled_from([*Mode, Permit(1), Permit(10_000)])
integers = st.integers(-(2**63), 2**63 - 1)
BY_NAME = {
    "act": st.sampled_from(Act),
    "claim": claims,
    "kind": st.sampled_from(Kind) | st.text(max_size=20),
    "reach": st.sampled_from(Reach),
    "targets": st.lists(st.text(max_size=10), max_size=4).map(tuple),
    "values": st.lists(integers, max_size=20).map(tuple),
    "versions": st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
    "parameters": st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
    "truth": st.booleans(),
    "baseline": st.booleans(),
    "held": st.booleans(),
    "shared": st.booleans(),
    "deadline": st.none() | integers,
}
BY_TYPE = {"int": integers, "str": st.text(max_size=30), "int | None": st.none() | integers}
KINDS = [
    kind
    for name in events.__all__
    if isinstance(kind := getattr(events, name), type)
    and issubclass(kind, Event)
    and kind is not Event
]


def some_event(kind: type[Event]) -> st.SearchStrategy[Event]:
    given = {
        field.name: BY_NAME[field.name] if field.name in BY_NAME else BY_TYPE[str(field.type)]
        for field in fields(kind)
    }
    if kind is FaultBegan:
        given["kind"] = st.text(max_size=20)
    elif kind is OperationOffered:
        given["kind"] = st.sampled_from(Kind)
    return st.builds(kind, **given)


@given(st.sampled_from(KINDS).flatmap(some_event))
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) < PIPE_BUF
    assert decode(line) == event


def test_a_line_is_plain_json() -> None:
    event = AcquireInvoked(17, "c1", "c1-1", "a", Permit(3))
    assert json.loads(encode(event)) == {
        "event": "AcquireInvoked",
        "at": 17,
        "process": "c1",
        "attempt": "c1-1",
        "lock": "a",
        "claim": "permit3",
        "together": "",
        "actor": "",
    }


def test_what_has_a_default_may_be_missing() -> None:
    sent = ReleaseSent(1, "c1", "c1-1")
    assert decode(encode(sent).replace(b',"patience":null', b"")) == sent


def test_long_texts_are_cut_and_what_is_too_long_otherwise_is_refused() -> None:
    text = "🔒" * 10_000
    failed = decode(encode(AcquireFailed(1, "c1", "a", "OSError", text)))
    assert failed == AcquireFailed(1, "c1", "a", "OSError", text[:200])
    lost = decode(encode(LossSignalled(1, "c1", "a", text, None)))
    assert lost == LossSignalled(1, "c1", "a", text[:200], None)
    with pytest.raises(ValueError, match="less than 4096 are one piece"):
        encode(AcquireInvoked(1, "c1", text, "a", Mode.EX))


GOOD = b'{"event":"Surveyed","at":1,"process":"o","revision":7}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "Expecting value"),
        (b"{]\n", "Expecting"),
        (b"[1]\n", "no JSON object"),
        (b"\xff\n", "utf-8"),
        (b'{"at":1}\n', "no such event: None"),
        (b'{"event":"Event","at":1,"process":"o"}\n', "no such event: 'Event'"),
        (b'{"event":["Surveyed"]}\n', "no such event"),
        (GOOD.replace(b',"revision":7', b""), "has the fields at, process, revision"),
        (GOOD.replace(b"revision", b"version"), "has the fields"),
        (GOOD.replace(b"7", b'7,"more":1'), "has the fields"),
        (GOOD.replace(b"7", b'"7"'), "an integer was expected, not '7'"),
        (GOOD.replace(b"7", b"7.0"), "an integer was expected"),
        (GOOD.replace(b"7", b"true"), "an integer was expected"),
        (GOOD.replace(b'"o"', b"1"), "a text was expected"),
        (
            encode(AcquireInvoked(1, "c", "x", "a", Mode.EX)).replace(b'"lock",', b'"what",'),
            "claim",
        ),
        (encode(FaultBegan(1, "n", "f", "k", Reach.CLOCKS, ())).replace(b"clocks", b"x"), "Reach"),
        (encode(FaultBegan(1, "n", "f", "k", Reach.CLOCKS, ())).replace(b"[]", b"1"), "a list"),
        (encode(RunBegan(1, "r", 1, "etcd", True)).replace(b"true", b"1"), "true or false"),
        (encode(RunBegan(1, "r", 1, "etcd", True)).replace(b"{}", b"[]"), "an object"),
    ],
)
def test_a_line_that_no_journal_wrote_is_an_error_that_names_it(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    file = tmp_path / "c1.jsonl"
    file.write_bytes(GOOD + line + GOOD)
    with pytest.raises(MalformedHistory) as error:
        read([file])
    assert str(error.value).startswith(f"{file}, line 2: ")
    assert reason in str(error.value)
    assert (error.value.file, error.value.line) == (file, 2)


@pytest.mark.parametrize("length", [1, 20, len(GOOD) - 1])
def test_a_torn_last_line_is_left_out_and_its_writer_known(tmp_path: Path, length: int) -> None:
    whole, torn, only = tmp_path / "a", tmp_path / "b", tmp_path / "c3.jsonl"
    whole.write_bytes(GOOD)
    torn.write_bytes(GOOD + GOOD[:length])
    only.write_bytes(GOOD[:length])
    history = read([whole, torn, only])
    assert history.torn == ("o", "c3")
    assert history.events == (Surveyed(1, "o", 7),) * 2


def test_a_torn_line_before_others_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(GOOD[:20] + GOOD)
    with pytest.raises(MalformedHistory, match="line 1"):
        read([file])


def test_files_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    for name, times in (("a", [5, 3, 9]), ("b", [4, 8, 1])):
        with Journal(tmp_path / name, name) as journal:
            for at in times:
                journal.write(Quiesced(at, name))
    history = read([tmp_path / "a", tmp_path / "b"])
    assert [event.at for event in history.events] == [1, 3, 4, 5, 8, 9]


def test_what_is_logged_is_stamped_with_the_time_and_the_process(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    with Journal(tmp_path / "c1", "c1") as journal:
        event = journal.log(Granted, "c1-1", token=7, deadline=None)
    assert before <= event.at <= time.monotonic_ns()
    assert event == Granted(event.at, "c1", "c1-1", 7, None)
    assert read([tmp_path / "c1"]).events == (event,)


@pytest.mark.parametrize("number", [0, 1, 1000])
def test_a_set_of_any_size_is_told_in_lines_that_are_whole(tmp_path: Path, number: int) -> None:
    values = [2**62 + value for value in range(number)]
    with Journal(tmp_path / "r", "runner") as journal:
        journal.final_set("ledger", values)
    history = read([tmp_path / "r"])
    told = history.resources["ledger"].final_sets
    assert told
    assert [value for event in told for value in event.values] == values


def test_a_journal_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with Journal(tmp_path / "c1", "c1") as journal:
            journal.log(Quiesced)
    assert len(read([tmp_path / "c1"]).events) == 2


def test_a_deadline_is_told_on_the_journals_clock(tmp_path: Path) -> None:
    with Journal(tmp_path / "c1", "c1") as journal:
        assert journal.moment(math.inf) is None
        before = journal.now()
        moment = journal.moment(SYSTEM_CLOCK.now() + 10)
        after = journal.now()
    assert moment is not None
    # The two clocks are read one after the other, and no more than a millisecond apart.
    assert before + 10_000_000_000 - 1_000_000 <= moment <= after + 10_000_000_000 + 1_000_000


def test_a_reading_of_the_clocks_that_was_interrupted_is_repeated(tmp_path: Path) -> None:
    class Clock:
        readings = 0

        def now(self) -> float:
            self.readings += 1
            if self.readings == 1:
                time.sleep(0.01)  # as if the process had been stopped here
            return 100.0

    clock = Clock()
    with Journal(tmp_path / "c1", "c1") as journal:
        moment = journal.moment(101.0, clock)
        after = journal.now()
    assert clock.readings >= 2
    assert moment is not None
    assert abs(moment - after - 1_000_000_000) < 5_000_000


WRITER = """
import sys
from pathlib import Path
from coordlock_faults.journal import Journal
from coordlock_faults.events import AcquireFailed
journal = Journal(Path(sys.argv[1]), sys.argv[2])
number = 0
while len(sys.argv) < 4 or number < int(sys.argv[3]):
    journal.log(AcquireFailed, str(number), "busy", "x" * (number % 200))
    number += 1
"""


def test_processes_that_write_to_one_file_don_t_mix_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "all"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), f"c{one}", "2000"])
        for one in range(4)
    ]
    assert [one.wait(60) for one in writers] == [0] * 4
    found = read([file]).events
    assert len(found) == 8000
    for one in range(4):
        mine = [event for event in found if event.process == f"c{one}"]
        assert [event.attempt for event in mine if isinstance(event, AcquireFailed)] == [
            str(number) for number in range(2000)
        ]


def test_a_writer_that_is_killed_leaves_what_it_had_written(tmp_path: Path) -> None:
    file = tmp_path / "all"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), f"c{one}"]) for one in range(2)
    ]
    # One may be slow to start.
    eventually(
        lambda: file.exists() and all(file.read_bytes().count(b) > 1000 for b in (b'"c0"', b'"c1"'))
    )
    for one in writers:
        os.kill(one.pid, signal.SIGKILL)
        one.wait(60)
    history = read([file])
    assert history.torn == ()
    assert {event.process for event in history.events} == {"c0", "c1"}


def test_what_cannot_be_written_is_an_error() -> None:
    with Journal(Path("/dev/full"), "c1") as journal, pytest.raises(OSError, match="No space"):
        journal.log(Quiesced)


@pytest.mark.parametrize("claims", [MODES, PERMITS])
def test_a_whole_history_comes_back_as_it_was(
    tmp_path: Path, claims: tuple[Mode | Permit, ...]
) -> None:
    written = Reference(7, claims=claims, faults=list(Reach)[:4]).run()
    journals = {
        process: Journal(tmp_path / process, process)
        for process in {event.process for event in written}
    }
    for event in written:
        journals[event.process].write(event)
    history = read(sorted(tmp_path.iterdir()))
    assert sorted(map(repr, history.events)) == sorted(map(repr, written))
    assert [event.at for event in history.events] == sorted(event.at for event in written)
    assert FinalSet in map(type, history.events)


def test_a_line_that_is_written_while_it_is_read_is_torn_and_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Growing(io.BytesIO):
        """A file to whose last line the rest is added when it was read half."""

        def __iter__(self) -> Iterator[bytes]:
            return iter([GOOD, GOOD[:9], GOOD[9:]])

    monkeypatch.setattr(Path, "open", lambda *_: Growing())
    history = read([tmp_path / "o.jsonl"])
    assert (len(history.events), history.torn) == (1, ("o",))

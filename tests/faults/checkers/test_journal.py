from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from coordlock_faults.events import (
    AcquireFailed,
    FinalSet,
    Reach,
    Surveyed,
)
from coordlock_faults.journal import Journal, read

from coordlock.model.claim import Mode, Permit
from tests.faults.checkers.reference import MODES, PERMITS, Reference

GOOD = b'{"event":"Surveyed","at":1,"process":"o","revision":7}\n'


@pytest.mark.parametrize("length", [1, 20, len(GOOD) - 1])
def test_a_torn_last_line_is_left_out_and_its_writer_known(tmp_path: Path, length: int) -> None:
    whole, torn, only = tmp_path / "a", tmp_path / "b", tmp_path / "c3.jsonl"
    whole.write_bytes(GOOD)
    torn.write_bytes(GOOD + GOOD[:length])
    only.write_bytes(GOOD[:length])
    history = read([whole, torn, only])
    assert history.torn == ("o", "c3")
    assert history.events == (Surveyed(1, "o", 7),) * 2


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

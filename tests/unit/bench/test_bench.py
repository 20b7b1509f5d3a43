"""What the benchmark's figures rest on: its statistics, its turns, its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench import field, workers
from bench.__main__ import SECTIONS, main
from bench.contended import _SECONDS, _rate, _unfairness
from bench.contestants import ENTRANTS
from bench.field import in_turns
from bench.figures import Spread, percentile, ratios
from bench.table import Table
from bench.workers import Worker, WorkerFailed
from coordlock.testing.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]


def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed() -> None:
    samples = list(range(100, 0, -1))
    assert percentile(samples, 99) == 99
    assert percentile(samples, 50) == 50
    assert percentile([7.0], 99) == 7.0


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times as slow in the second round, for both.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratios([1.0], [1.0, 2.0])


def test_a_lock_is_unfair_by_its_longest_wait() -> None:
    assert _unfairness([[(0.0, 0.1), (0.1, 0.1)], [(0.2, 0.1), (0.3, 0.5)]]) == pytest.approx(5)


def test_grants_after_the_end_count_for_the_waits_alone() -> None:
    grants = [[(0.0, 0.1), (_SECONDS + 0.1, 0.4)], [(0.2, 0.1)]]
    assert _rate(grants) == pytest.approx(2 / _SECONDS)
    assert _unfairness(grants) == pytest.approx(4)


def test_each_takes_part_in_every_round_and_goes_first_in_turn() -> None:
    three = list(ENTRANTS[:3])
    order = [one for _, one in in_turns(three, 2)]
    assert order[:3] == three
    assert order[3:6] == [three[1], three[2], three[0]]
    assert order[6:] == [three[2], three[0], three[1]]


def test_who_has_taken_too_much_time_sits_out_until_others_have_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0
    monkeypatch.setattr(field, "time", SimpleNamespace(monotonic=lambda: now))
    took = {"quick": 1, "usual": 1, "slow": 10}
    rounds: dict[str, list[int]] = {who: [] for who in took}
    for number, who in field.in_turns(list(took), 12):
        rounds[who].append(number)
        now += took[who]
    assert rounds["quick"] == rounds["usual"] == list(range(13))
    assert rounds["slow"] == [0, 1, 7, 10]


def test_a_worker_obeys_and_says_what_went_wrong(tmp_path: Path) -> None:
    subject = "bench.contestants.floors:Flock"
    with Worker(subject, str(tmp_path), "") as worker:
        assert len(worker.do("pairs", name="orders", calls=3)) == 3
        held = worker.do("hold", name="orders")
        assert worker.do("let_go", name="orders") >= held
        with pytest.raises(WorkerFailed, match="KeyError"):
            worker.do("let_go", name="orders")
        with pytest.raises(WorkerFailed, match="no_such_order"):
            worker.do("no_such_order")
        assert worker.do("cpu") > 0


def test_a_worker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(WorkerFailed, match="ModuleNotFoundError"),
        Worker("bench.contestants.nobody:Nobody"),
    ):
        pass


class Parent:
    """A worker whose order takes as long as the process that it starts."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def wait(self) -> None:
        with subprocess.Popen(["sleep", "600"]) as child:
            self._file.write_text(f"{child.pid}\n")


def test_a_worker_that_is_busy_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 600)
    file = tmp_path / "child"
    file.touch()
    with Worker(f"{__name__}:Parent", str(file)) as worker:
        worker.tell("wait")
        eventually(lambda: file.read_text().endswith("\n"), "the child")
        # Ctrl-C in the terminal does not reach it.
        assert os.getsid(worker.pid) == worker.pid
    assert not is_there(worker.pid)
    eventually(lambda: not is_there(int(file.read_text())), "the child's end")


def measured(monkeypatch: pytest.MonkeyPatch, **sections: Any) -> None:
    """Let there be other sections, with these as ``measure``."""
    for name, measure in sections.items():
        module = ModuleType(f"bench.{name}")
        module.measure = measure  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(SECTIONS, name, ("a test", 7))


def fine(rounds: int) -> Iterator[Table]:
    table = Table("Fine", ("who", "x"))
    table.add("anybody", float(rounds))
    yield table


def broken(_: int) -> Iterator[Table]:
    yield from fine(7)
    raise RuntimeError("no more")


def test_a_section_that_fails_loses_neither_its_rows_nor_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measured(monkeypatch, broken=broken, fine=fine)
    assert main(["broken", "fine", "--rounds", "3", "--output", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    titles = [line for line in shown.out.splitlines() if line == "Fine"]
    assert titles == ["Fine", "Fine"]
    assert "RuntimeError: no more" in shown.err
    assert "failed: broken" in shown.err
    kept = json.loads((tmp_path / "fine.json").read_text())
    assert kept["tables"][0]["rows"] == [{"who": "anybody", "x": 3.0}]
    assert (tmp_path / "broken.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["nothing"], "no section: nothing"), (["work", "--rounds", "1"], "2 or more")],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


#: A benchmark whose one section has measured a row, and waits for a worker that waits for a lock.
ENDLESS = """
import sys
from types import ModuleType, SimpleNamespace
from bench.__main__ import SECTIONS, main
from bench.table import Table
from bench.workers import Worker

def measure(rounds):
    table = Table("Endless", ("who", "x"))
    table.add("the first", 1.0)
    yield table
    subject = "bench.contestants.floors:Flock"
    with Worker(subject, sys.argv[1], "") as holder, Worker(subject, sys.argv[1], "") as waiter:
        holder.do("hold", name="orders")
        print("workers", holder.pid, waiter.pid, file=sys.stderr, flush=True)
        waiter.do("wait", name="orders")

SECTIONS["endless"] = SECTIONS["never"] = "a test", 100
module = sys.modules["bench.endless"] = ModuleType("bench.endless")
module.measure = measure
sys.exit(main(["endless", "never", "--output", sys.argv[1] + "/out", *sys.argv[2:]]))
"""


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stderr is not None
        line = next(line for line in bench.stderr if line.startswith("workers"))
        pids = [int(pid) for pid in line.split()[1:]]
        assert all(map(is_there, pids))
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=60)
    assert bench.returncode == 130
    assert not any(map(is_there, pids))
    assert "the first" in out
    assert err.startswith("interrupted; full tables are in")
    kept = json.loads((tmp_path / "out" / "endless.json").read_text())
    assert kept["tables"][0]["rows"] == [{"who": "the first", "x": 1.0}]


def is_there(pid: int) -> bool:
    """Whether the process runs; nobody may have waited for it after its end."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False

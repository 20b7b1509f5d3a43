"""Programs that close all descriptors, as daemons do, and open files of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BOUND = 60.0

#: Closes all descriptors while a client holds, waits and observes, opens as many of its own, and
#: closes the client. Prints each of its own that is not as it was.
PROGRAM = """
import os, sys, threading, time
import coordlock

root, kind, moment = sys.argv[1:]
holder, client = (coordlock.connect(f"local://{root}/state?request_timeout=30s") for _ in range(2))
held = holder.lock("q").acquire()
ended = threading.Event()

def wait():
    try:
        client.lock("q").acquire()
    except coordlock.CoordlockError:
        ended.set()

threading.Thread(target=wait).start()
views = client.group("g").observe()
views.next(60)
values = client.values("/app").observe()
values.next(60)
while len(holder.admin.contenders("q")) < 2:
    pass
# A file that a thread has just open cannot be told from the program's own after this.
seen = []
while len(seen) < 10 or len({*seen[-10:]}) > 1:
    seen.append(tuple(os.listdir("/proc/self/fd")))
    time.sleep(0.02)
last = max(map(int, os.listdir("/proc/self/fd")))
os.closerange(3, last + 1)

def own(name):
    if kind == "eventfd":
        return os.eventfd(0, os.EFD_NONBLOCK)
    return os.open(f"{root}/{name}", os.O_RDWR | os.O_CREAT)

numbers = []
while not numbers or numbers[-1] < last:
    numbers.append(own(len(numbers)))
if moment == "release":
    held.release()
client.close()
holder.close()
assert ended.wait(60)
for number in numbers:
    try:
        if kind == "eventfd":
            try:
                print(number, "was written to:", os.eventfd_read(number))
            except BlockingIOError:
                pass
        elif os.fstat(number).st_size:
            print(number, "was written to")
    except OSError as error:
        print(number, error)
print("ended")
"""


@pytest.mark.parametrize("kind", ["file", "eventfd"])
@pytest.mark.parametrize("moment", ["release", "close"])
def test_the_programs_own_descriptors_are_neither_written_to_nor_closed(
    tmp_path: Path, kind: str, moment: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), kind, moment],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.stdout == "ended\n", done
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0

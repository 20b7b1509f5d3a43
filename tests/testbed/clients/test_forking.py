"""The check of forked children fails for a client that a child can use."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import random, threading
import coordlock
from testbed.clients import forking

forking._PAUSES = 0.01, 0.01
inherited = coordlock.connect("memory://one")
draining = threading.Event()

class Usable:
    def lock(self, name): return self
    def acquire(self, timeout): return self
    def close(self): ...

class AsyncUsable(Usable):
    async def acquire(self, timeout): return self

class Hung(Usable):
    def acquire(self, timeout): threading.Event().wait()

async def connect(): return await coordlock.connect_async("memory://one")
import asyncio
other = asyncio.run(connect())

def check(client, other):
    threading.Timer(0.5, draining.set).start()
    forking.fork_now_and_then(client, other, draining, random.Random(1))
"""


def result(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60
    )


def test_a_child_that_gets_the_clear_error_is_right() -> None:
    done = result("check(inherited, other)")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("clients", "status"), [("Usable(), other", 2), ("inherited, AsyncUsable()", 3)]
)
def test_a_child_that_gets_a_lock_is_found(clients: str, status: int) -> None:
    done = result(f"check({clients})")
    assert done.returncode == 1
    assert f"ended with status {status}" in done.stderr


def test_a_child_that_hangs_is_found() -> None:
    done = result("forking._PATIENCE = 0.5; check(Hung(), other)")
    assert "ended with status -6" in done.stderr
    assert "Fatal Python error: Aborted" in done.stderr  # and it tells where


FIRST_HANGS = """
import os
children = []
def hang():
    if not children:
        threading.Event().wait()
os.register_at_fork(after_in_parent=lambda: children.append(1), after_in_child=hang)
forking._BEGINNING = forking._PATIENCE = 0.3
"""
UNDER_LIBFAKETIME = "os.environ['FAKETIME_TIMESTAMP_FILE'] = 'any'\n"


def test_a_child_that_hangs_before_it_begins_is_replaced_under_libfaketime() -> None:
    done = result(FIRST_HANGS + UNDER_LIBFAKETIME + "check(inherited, other); print(len(children))")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 1


def test_a_child_that_hangs_before_it_begins_is_found_elsewhere() -> None:
    assert "ended with status -6" in result(FIRST_HANGS + "check(inherited, other)").stderr

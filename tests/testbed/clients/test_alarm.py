"""Whatever nobody expects ends a client with a traceback: none of it would fail a run otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import asyncio, gc, logging, os, sys, threading, time, warnings
from testbed.clients import alarm
alarm.install()
"""
UNEXPECTED = {
    "a warning": "warnings.warn('Nobody waited for it', RuntimeWarning)",
    "a coroutine that nobody awaited": """
async def forgotten(): ...
forgotten()
gc.collect()
""",
    "a logged error": "logging.getLogger('coordlock').error('a timer failed'); time.sleep(30)",
    "an exception in a thread": "threading.Thread(target=lambda: 1 / 0).start(); time.sleep(30)",
    "an exception in a destructor": """
class Broken:
    def __del__(self): 1 / 0
Broken()
gc.collect()
""",
    "a task whose exception nobody asked for": """
async def main():
    alarm.watch_loop(asyncio.get_running_loop())
    async def fail(): 1 / 0
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(30)
asyncio.run(main())
""",
    "an exception in a callback": """
async def main():
    alarm.watch_loop(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(30)
asyncio.run(main())
""",
}


def result(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("what", UNEXPECTED)
def test_what_nobody_expects_ends_the_process(what: str) -> None:
    done = result(UNEXPECTED[what] + "\nos._exit(0)")
    assert done.returncode == 1
    assert done.stderr


def test_what_faults_make_coordlock_say_does_not() -> None:
    done = result("logging.getLogger('coordlock').warning('in doubt')")
    assert (done.returncode, "in doubt" in done.stderr) == (0, True)

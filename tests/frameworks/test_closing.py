"""Clients that are closed in each of the usual ways, or live until the exit, print no warning.

Grants are no part of this: one that is dropped while it is held warns on purpose. Nor are slow
steps of the loop, which asyncio's debug mode prints.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WAYS = {
    "contextlib.closing": """
import contextlib, coordlock
with contextlib.closing(coordlock.connect(URL)) as client, client.lock("x"):
    pass
""",
    "ExitStack": """
import contextlib, coordlock
with contextlib.ExitStack() as stack:
    client = stack.enter_context(coordlock.connect(URL))
    stack.callback(client.close)
    stack.enter_context(client.lock("x"))
""",
    "AsyncExitStack": """
import asyncio, contextlib, coordlock
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(coordlock.connect_async(URL))
        stack.push_async_callback(client.close)
        await stack.enter_async_context(client.lock("x"))
asyncio.run(main())
""",
    "finally, in asyncio": """
import asyncio, coordlock
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    client = await coordlock.connect_async(URL)
    try:
        async with client.lock("x"):
            pass
    finally:
        await client.close()
asyncio.run(main())
""",
    "atexit": """
import atexit, coordlock
client = coordlock.connect(URL)
atexit.register(client.close)
grant = client.lock("x").acquire()
""",
    "never": """
import coordlock
client = coordlock.connect(URL)
grant = client.lock("x").acquire()
""",
    "never, of a module": """
import coordlock
client = coordlock.Client(URL)
lock = client.lock("x")
with lock:
    pass
""",
}
DROPPED = {
    "at once": """
import coordlock
grant = coordlock.connect(URL).lock("x").acquire()
""",
    "in a thread that ended": """
import threading, coordlock
def work():
    coordlock.connect(URL).lock("x").acquire().release()
thread = threading.Thread(target=work)
thread.start()
thread.join()
import gc; gc.collect()
""",
    "in a loop that ended": """
import asyncio, gc, coordlock
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    client = await coordlock.connect_async(URL)
    async with client.lock("x"):
        pass
asyncio.run(main())
gc.collect()
""",
}


def stderr_of(program: str, url: str) -> str:
    """What the program prints as an error, where warnings are errors; it ends well."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"URL = {url!r}\n{program}"],
        env={**os.environ, "PYTHONDEVMODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_no_warning(way: str, url: str) -> None:
    assert stderr_of(WAYS[way], url) == ""


@pytest.mark.parametrize("way", DROPPED)
def test_a_client_that_is_dropped_is_warned_of(way: str, url: str) -> None:
    warned = stderr_of(DROPPED[way], url)
    assert warned.count("ResourceWarning") == 1
    assert "was dropped and not closed" in warned

"""Clients that are closed in each of the usual ways, or not at all, print no warning.

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
grant = coordlock.connect(URL).lock("x").acquire()
""",
    "dropped in a thread that ended": """
import threading, coordlock
def work():
    coordlock.connect(URL).lock("x").acquire().release()
thread = threading.Thread(target=work)
thread.start()
thread.join()
import gc; gc.collect()
""",
    "dropped in a loop that ended": """
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


@pytest.mark.parametrize("way", WAYS)
def test_no_warning(way: str, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"URL = {url!r}\n{WAYS[way]}"],
        env={**os.environ, "PYTHONDEVMODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

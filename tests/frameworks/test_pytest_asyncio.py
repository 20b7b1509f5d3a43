"""Fixtures of pytest-asyncio hold locks. It runs in a process of its own: it is off in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import contextlib

import coordlock
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    async with coordlock.connect_async("memory://fixtures") as client:
        yield client
        assert await client.admin.names() == []


@pytest_asyncio.fixture(loop_scope="module")
async def grant(client):
    async with client.lock("one", timeout=60) as grant:
        yield grant


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def readers(client):
    lock = client.read_lock("many")
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lock) for _ in range(3)]


@pytest.fixture(scope="module")
def held():
    with coordlock.connect("memory://fixtures") as client, client.lock("sync") as grant:
        yield grant


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(3))
async def test_a_fixture_holds_a_lock(grant, held, readers, number):
    for one in (grant, held, *readers):
        one.check()
"""


def test_fixtures_are_left_in_tasks_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_fixtures.py").write_text(TESTS, "utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout

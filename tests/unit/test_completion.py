"""Completion in Jupyter and IPython: jedi, which they ask, finds the public methods."""

from __future__ import annotations

import jedi
import pytest

import coordlock

PROGRAMS = {
    "client": (
        coordlock.Client,
        """
import coordlock
client = coordlock.connect("memory://")
client.""",
    ),
    "grant": (
        coordlock.Grant,
        """
import coordlock
client = coordlock.connect("memory://")
with client.lock("a") as grant:
    grant.""",
    ),
    "client of asyncio": (
        coordlock.AsyncClient,
        """
import coordlock
async def main():
    async with coordlock.connect_async("memory://") as client:
        client.""",
    ),
    "grant of asyncio": (
        coordlock.AsyncGrant,
        """
import coordlock
async def main():
    async with coordlock.connect_async("memory://") as client:
        async with client.lock("a") as grant:
            grant.""",
    ),
    "item": (
        coordlock.Item,
        """
import coordlock
client = coordlock.Client("memory://")
item = client.work_queue("a").take()
item.""",
    ),
}


@pytest.mark.parametrize(("kind", "program"), PROGRAMS.values(), ids=PROGRAMS)
def test_jedi_completes_the_public_methods(kind: type, program: str) -> None:
    completed = {one.name for one in jedi.Script(program).complete()}
    public = {name for name in dir(kind) if not name.startswith("_")}
    assert public
    assert public <= completed


def test_jedi_completes_the_public_names() -> None:
    completed = {one.name for one in jedi.Script("import coordlock\ncoordlock.").complete()}
    assert set(coordlock.__all__) <= completed

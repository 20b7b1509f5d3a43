"""Several `alembic upgrade head` at once migrate a database once, and take over from a dead one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from tests.docs.pages import blocks

BOUND = 100.0

ENV = """
from sqlalchemy import create_engine
from alembic import context

url = context.config.get_main_option("sqlalchemy.url")

def run_migrations_offline():
    context.configure(url=url, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()

def run_migrations_online():
    with create_engine(url).connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
"""
MIGRATION = """
import pathlib, time
from alembic import op

revision, down_revision = "one", None

def upgrade():
    with open("ran", "a") as file:
        file.write("migrated\\n")
    while not pathlib.Path("go-on").exists():
        time.sleep(0.01)
    op.execute("CREATE TABLE account (name TEXT)")
"""

Upgrade = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[Upgrade]:
    """Starts `alembic upgrade head`."""
    page = blocks("docs/how-to/locks-and-transactions.md")
    [block] = [block for block in page if "one_at_a_time" in block.text]
    (tmp_path / "alembic" / "versions").mkdir(parents=True)
    (tmp_path / "alembic" / "env.py").write_text(ENV + block.text)
    (tmp_path / "alembic" / "versions" / "one.py").write_text(MIGRATION)
    (tmp_path / "alembic.ini").write_text(
        "[alembic]\nscript_location = %(here)s/alembic\nsqlalchemy.url = sqlite:///bank.db\n"
    )
    environment = {**os.environ, "COORDLOCK_URL": f"local://{tmp_path}/locks"}
    with ExitStack() as stack:

        def start(*options: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "alembic", "upgrade", "head", *options],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def client(tmp_path: Path) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"local://{tmp_path}/locks") as client:
        yield client


def ran(folder: Path) -> int:
    file = folder / "ran"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_three_migrate_once_and_the_next_takes_over_from_one_that_is_killed(
    upgrade: Upgrade, client: coordlock.Client, tmp_path: Path
) -> None:
    all_of_them = [upgrade() for _ in range(3)]
    eventually(
        lambda: len(client.admin.contenders("alembic")) == 3 and ran(tmp_path) == 1, within=BOUND
    )
    [pid] = [
        one.owner.pid for one in client.admin.contenders("alembic") if one.holding and one.owner
    ]
    [first] = [one for one in all_of_them if one.pid == pid]
    first.kill()
    eventually(lambda: ran(tmp_path) == 2, within=BOUND)
    (tmp_path / "go-on").touch()
    for one in all_of_them:
        if one is not first:
            _, errors = one.communicate(timeout=BOUND)
            assert one.returncode == 0, errors
    assert ran(tmp_path) == 2
    eventually(lambda: client.admin.contenders("alembic") == ())


def test_nothing_is_committed_after_a_loss(
    upgrade: Upgrade, client: coordlock.Client, tmp_path: Path
) -> None:
    process = upgrade()
    eventually(lambda: ran(tmp_path) == 1, within=BOUND)
    client.admin.evict(client.admin.contenders("alembic")[0])
    (tmp_path / "go-on").touch()
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode != 0
    assert "LockLost" in errors
    (tmp_path / "go-on").unlink()
    again = upgrade()
    eventually(lambda: ran(tmp_path) == 2, within=BOUND)
    again.kill()


def test_what_only_prints_does_not_wait(
    upgrade: Upgrade, client: coordlock.Client, tmp_path: Path
) -> None:
    (tmp_path / "go-on").touch()
    with client.lock("alembic"):
        printed, errors = upgrade("--sql").communicate(timeout=BOUND)
    assert "CREATE TABLE account" in printed, errors

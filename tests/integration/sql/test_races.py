"""Processes that race for one account, most of them with stale tokens, whatever the isolation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text

from testbed.servers.postgres import Postgres
from tests.integration.sql.account import ISOLATION_LEVELS, LEDGER, balance, connect, create

WRITERS, ROUNDS = 3, 40


def race(url: str, style: str, directory: Path) -> list[int]:
    """Let the writers race; the tokens of all acknowledged deposits, in ascending order."""
    command = [sys.executable, "-m", "tests.integration.sql.writer"]
    arguments = [url, style, str(directory / "tokens"), str(ROUNDS)]
    writers = [
        subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": ""},
        )
        for _ in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            print("go", file=writer.stdin, flush=True)
        printed = [writer.communicate(timeout=90)[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0] * WRITERS
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    return sorted(int(token) for line in printed for token in line.split())


def check_the_account(engine: Engine, acknowledged: list[int], *orders: str) -> None:
    """No acknowledged deposit is lost, and tokens never fall, by any of ``orders``."""
    with engine.begin() as connection:
        assert balance(connection) == len(acknowledged)
        for order in orders:
            tokens = connection.execute(select(LEDGER.c.token).order_by(text(order))).scalars()
            assert tokens.all() == acknowledged, order
    # Some were overtaken, and some were not.
    assert 0 < len(acknowledged) < WRITERS * ROUNDS


@pytest.mark.parametrize("level", ISOLATION_LEVELS)
def test_no_acknowledged_deposit_is_lost_on_postgres(
    postgres: Postgres, level: str, tmp_path: Path
) -> None:
    with postgres.schema() as url:
        text_of_url = url.render_as_string(hide_password=False)
        engine = connect(text_of_url, level)
        create(engine)
        try:
            acknowledged = race(text_of_url, level, tmp_path)
            by_commit = "pg_xact_commit_timestamp(xmin)"
            check_the_account(engine, acknowledged, "number", by_commit)
        finally:
            engine.dispose()


@pytest.mark.long_on("delete")
@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("style", ["driver", "BEGIN", "BEGIN IMMEDIATE"])
def test_no_acknowledged_deposit_is_lost_on_sqlite(
    journal: str, style: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/db"
    engine = connect(url, style)
    create(engine, journal)
    try:
        check_the_account(engine, race(url, style, tmp_path), "number")
    finally:
        engine.dispose()

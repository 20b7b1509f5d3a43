"""What importing the SQL fences needs."""

from __future__ import annotations

import subprocess
import sys


def output_of(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_without_sqlalchemy_the_error_names_the_extra() -> None:
    assert output_of(
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import coordlock.fencing\n"
        "try: import coordlock.fencing.sql\n"
        "except coordlock.errors.ConfigurationError as error: print(error)"
    ) == ("SQL fences need the package sqlalchemy; install it with: pip install 'coordlock[sql]'\n")


def test_they_need_neither_a_driver_nor_what_asyncio_needs() -> None:
    assert output_of(
        "import sys\n"
        "for name in ('greenlet', 'psycopg', 'psycopg2', 'aiosqlite'): sys.modules[name] = None\n"
        "from sqlalchemy import create_engine\n"
        "from coordlock.fencing.sql import AsyncSQLFence, SQLFence, create_fence_table\n"
        "with create_engine('sqlite://').begin() as connection:\n"
        "    create_fence_table(connection)\n"
        "    SQLFence(connection).check('alice', 33)\n"
        "    print(SQLFence(connection).marks('alice'))"
    ) == ("Marks(exclusive=33, shared=0)\n")

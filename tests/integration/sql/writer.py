"""A process that deposits under tokens that others overtake: ``writer.py URL STYLE TOKENS ROUNDS``.

Waits for a line, then makes ROUNDS deposits of 1, each of which reads and writes the balance under
a token of its own, in two transactions or in one. Prints the tokens of the acknowledged ones.
"""

from __future__ import annotations

import os
import random
import sys
import time
from functools import partial

from sqlalchemy import Connection, func, select

from coordlock import StaleToken
from tests.integration.sql.account import LEDGER, balance, connect, deposit, fence, repeat

CHANCE = random.Random(os.getpid())


def next_token(file: int) -> int:
    """The size of the file after another byte; what is appended at once gets places of its own."""
    os.write(file, b".")
    return os.lseek(file, 0, os.SEEK_CUR)


def linger() -> None:
    """Give others a chance to overtake."""
    time.sleep(CHANCE.random() / 500)


def check(connection: Connection, token: int) -> None:
    if CHANCE.random() < 0.5:
        # Look at what is not protected; with some isolation levels all is read as of now.
        connection.execute(select(func.count()).select_from(LEDGER)).all()
        linger()
    fence(connection).check("account", token)
    linger()


def read(token: int, connection: Connection) -> int:
    check(connection, token)
    return balance(connection)


def write(token: int, seen: int, connection: Connection) -> None:
    check(connection, token)
    deposit(connection, token, seen + 1)


def read_and_write(token: int, connection: Connection) -> None:
    check(connection, token)
    deposit(connection, token, balance(connection) + 1)


def main(url: str, style: str, tokens: str, rounds: str) -> None:
    engine = connect(url, style)
    file = os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    acknowledged: list[int] = []
    repeat(engine, balance)  # connected
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(rounds)):
        token = next_token(file)
        try:
            if CHANCE.random() < 0.7:
                seen = repeat(engine, partial(read, token))
                linger()
                repeat(engine, partial(write, token, seen))
            else:
                repeat(engine, partial(read_and_write, token))
        except StaleToken:
            continue
        acknowledged.append(token)
    engine.dispose()
    print(*acknowledged)


if __name__ == "__main__":
    main(*sys.argv[1:])

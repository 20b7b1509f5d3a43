"""Money moves between accounts, each under a lock of its own; both locks are taken in one step.

Two transfers between the same accounts, in opposite directions, would wait for each other for ever
if each took one lock after the other. Run it as it is: it uses the locks of this machine.
"""

from __future__ import annotations

import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import coordlock

ACCOUNTS = ["alice", "bob", "carol"]


def transfers(directory: str, seed: int) -> int:
    chance = random.Random(seed)
    with coordlock.connect() as client:
        for _ in range(25):
            source, target = chance.sample(ACCOUNTS, 2)
            with client.multi_lock([source, target], timeout=60):
                amount = chance.randint(1, 10)
                for account, change in ((source, -amount), (target, amount)):
                    file = Path(directory, account)
                    file.write_text(str(int(file.read_text()) + change))
    return 25


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for account in ACCOUNTS:
            Path(directory, account).write_text("1000")
        with ProcessPoolExecutor(4) as pool:
            made = sum(pool.map(transfers, [directory] * 4, range(4)))
        balances = {account: int(Path(directory, account).read_text()) for account in ACCOUNTS}
    print(f"{made} transfers by 4 processes, {sum(balances.values())} in all accounts")
    assert sum(balances.values()) == 1000 * len(ACCOUNTS)


if __name__ == "__main__":
    main()

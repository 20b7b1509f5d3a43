"""A ledger in SQLite that refuses stale tokens, also from readers.

Run it as it is: it uses the locks of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import sqlite3

import coordlock


class StaleTokenError(Exception):
    """A newer token was here."""


class Ledger:
    """Balances by account, and the highest token that each account has seen."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS account"
            " (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL)"
        )

    def open_account(self, name: str, balance: int) -> None:
        self.db.execute("INSERT INTO account VALUES (?, ?, 0)", (name, balance))

    def read(self, name: str, token: int) -> int:
        """The balance. A holder of an older token can't write any more."""
        return self._one(
            "UPDATE account SET token = :token"
            " WHERE name = :name AND token <= :token RETURNING balance",
            {"name": name, "token": token},
        )

    def write(self, name: str, balance: int, token: int) -> None:
        """Check and write, in one step."""
        self._one(
            "UPDATE account SET balance = :balance, token = :token"
            " WHERE name = :name AND token <= :token RETURNING balance",
            {"name": name, "balance": balance, "token": token},
        )

    def _one(self, statement: str, values: dict[str, object]) -> int:
        row = self.db.execute(statement, values).fetchone()
        if row is None:
            raise StaleTokenError(f"token {values['token']} is older than one that was here")
        balance: int = row[0]
        return balance


def main() -> None:
    ledger = Ledger(":memory:")
    ledger.open_account("alice", 100)

    with coordlock.connect() as client:
        # The first one reads, and stands still. Its lock is lost meanwhile.
        sleeper = client.lock("account/alice").acquire()
        seen = ledger.read("alice", sleeper.token)
        [stuck] = client.admin.contenders("account/alice")
        client.admin.evict(stuck)

        # The second one is granted, and only reads.
        with client.lock("account/alice", timeout=30) as grant:
            print("the second one reads", ledger.read("alice", grant.token))
            # The first one goes on, with what it had read.
            try:
                ledger.write("alice", seen - 50, sleeper.token)
            except StaleTokenError as error:
                print("the first one is refused:", error)
            ledger.write("alice", 70, grant.token)
            print("the second one writes", ledger.read("alice", grant.token))
    ledger.db.close()


if __name__ == "__main__":
    main()

"""A client of an earlier release: ``peer.py URL``, with that release on the PYTHONPATH.

It reads requests, a line of JSON with a method of `Peer` and its arguments each, and answers with
``["ok", RESULT]`` or ``["error", CLASS, TEXT]``. So it uses only what that release has.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import coordlock


class Peer:
    """What a test may ask for. What lasts longer than a request has a name."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._held: dict[str, Any] = {}
        self._pool = ThreadPoolExecutor(4)
        self._begun: dict[str, Future[Any]] = {}

    def begin(self, name: str, method: str, *arguments: Any) -> None:
        """Let ``method`` go on in a thread."""
        self._begun[name] = self._pool.submit(getattr(self, method), *arguments)

    def result(self, name: str) -> Any:
        """What it came to."""
        return self._begun.pop(name).result(30)

    def acquire(self, kind: str, name: str, *arguments: Any) -> int:
        """The token of a lock, which is held from now on."""
        lock = getattr(self._client, kind)(name, *arguments)
        grant = self._held[name] = lock.acquire(timeout=30)
        return int(grant.token)

    def try_acquire(self, kind: str, name: str, *arguments: Any) -> bool:
        """Whether a lock is free; it is not held afterwards."""
        grant = getattr(self._client, kind)(name, *arguments).try_acquire()
        return grant is not None and bool(grant.release())

    def release(self, name: str) -> bool:
        return bool(self._held.pop(name).release())

    def lead(self, name: str, proposal: str) -> int:
        term = self._client.election(name, proposal.encode()).campaign(timeout=30)
        self._held[name] = term
        return int(term.token)

    def join(self, name: str, value: str) -> None:
        self._held[name] = self._client.group(name).join(value.encode())

    def members(self, name: str) -> list[str]:
        return sorted(member.value.decode() for member in self._client.group(name).members())

    def add(self, name: str, amount: int) -> int:
        return int(self._client.counter(name).add(amount))

    def count_down(self, name: str, count: int) -> int:
        return int(self._client.latch(name, count).count_down())

    def pass_barrier(self, name: str, parties: int) -> None:
        self._client.barrier(name, parties).wait(30)


def main() -> None:
    with coordlock.connect(sys.argv[1], label="earlier", ttl=3) as client:
        peer = Peer(client)
        for line in sys.stdin:
            method, *arguments = json.loads(line)
            try:
                answer: list[Any] = ["ok", getattr(peer, method)(*arguments)]
            except Exception as error:
                answer = ["error", type(error).__name__, str(error)]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

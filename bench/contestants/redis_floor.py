"""What no lock on Redis can go below: two scripts and a push, and nothing around them."""

from __future__ import annotations

import itertools
import selectors
import socket
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Final
from uuid import uuid4

import redis
from redis.connection import Connection

from bench.contestants.contestant import Contestant

__all__ = ["RedisFloor", "RedisQueue", "RedisThread"]

#: The id, at the end of the queue -> the last two.
_ENQUEUE: Final = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000000 + time[2], ARGV[1])
return redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
"""
#: Remove the id and tell those who wait.
_WITHDRAW: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
return redis.call('PUBLISH', KEYS[1], ARGV[1])
"""


class RedisFloor(Contestant):
    """The calling thread sends each script and reads its answer."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        kind: Any = redis.Redis
        self._client = kind(host=self.host, port=int(self.port), protocol=2)
        self._scripts = [self._client.script_load(one) for one in (_ENQUEUE, _WITHDRAW)]
        self._listening = self._client.pubsub()

    def acquire(self, name: str) -> tuple[str, str]:
        key, id = f"{self.root}:{name}", uuid4().hex
        self._run(0, key, id)
        return key, id

    def release(self, held: tuple[str, str]) -> None:
        self._run(1, *held)

    def wait(self, name: str) -> float:
        """When the push came that the one contender has left: a script and a push."""
        key = f"{self.root}:{name}"
        self._listening.subscribe(key)
        while (found := self._listening.get_message(timeout=60)) is None or (
            found["type"] != "message"
        ):
            pass
        gone = time.monotonic()
        self._listening.unsubscribe(key)
        self._held[name] = None
        return gone

    def _run(self, script: int, key: str, id: str) -> Any:
        return self._client.evalsha(self._scripts[script], 1, key, id)

    def close(self) -> None:
        self._listening.close()
        self._client.close()


class RedisThread(RedisFloor):
    """The same through a thread for I/O, as a client that also serves asyncio sends them."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        kind: Any = Connection
        self._connection = kind(host=self.host, port=int(self.port), protocol=2)
        self._connection.connect()
        self._asked: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()
        self._sent: deque[Future[Any]] = deque()
        self._ear, self._bell = socket.socketpair()
        for end in (self._ear, self._bell):
            end.setblocking(False)
        threading.Thread(target=self._serve, daemon=True).start()

    def _run(self, script: int, key: str, id: str) -> Any:
        answer: Future[Any] = Future()
        self._asked.append((("EVALSHA", self._scripts[script], 1, key, id), answer))
        self._bell.send(b"\0")
        return answer.result()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            selector.register(self._connection._sock, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._ear:
                        self._ear.recv(4096)
                        while self._asked:
                            command, answer = self._asked.popleft()
                            self._sent.append(answer)
                            self._connection.send_packed_command(
                                self._connection.pack_commands([command])
                            )
                    else:
                        self._sent.popleft().set_result(self._connection.read_response())


#: Remove the id and tell the next one, at the channel that its id begins with.
_PASS_ON: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
local next = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
if next then redis.call('PUBLISH', string.match(next, '^[^-]*'), next) end
"""


class RedisQueue(RedisFloor):
    """Those messages as a queue: whoever is not alone waits for the push that it is next.

    No session, no token, and nothing that finds out a lost message.
    """

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._scripts[1] = self._client.script_load(_PASS_ON)
        self._inbox = uuid4().hex
        self._listening.subscribe(self._inbox)
        self._listening.get_message(timeout=60)
        self._numbers = itertools.count()

    def acquire(self, name: str) -> tuple[str, str]:
        key, id = f"{self.root}:{name}", f"{self._inbox}-{next(self._numbers)}"
        is_first = len(self._run(0, key, id)) == 2  # its id and its score
        if not is_first:
            while self._listening.get_message(timeout=60) is None:
                pass
        return key, id

"""What the processes of the tests do: ``worker.py URL LOG COMMAND ARGUMENTS...``.

``put NUMBER [STEP]`` puts so many items; ``take [STEP]`` takes them until it is told to stop;
``hold`` takes one, and does it when its input ends. Each says in LOG what it is about to do and
what was accepted. A STEP such as ``before:3`` or ``after:3``
kills the process before its third write is sent, or after the service has made it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import coordlock
from coordlock import LockLost, WorkQueueEmpty
from coordlock.backend import Operation, Read

QUEUE = "q"
STOP = b"stop"


class Log:
    """Lines that several processes append."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def dying_at(client: coordlock.Client, step: str, of: int = signal.SIGKILL) -> None:
    """Let the process die at this step of its writes to the service, or stand still."""
    when, _, number = step.partition(":")

    def die() -> None:
        os.kill(os.getpid(), of)

    backend: Any = client._access.engine.backend
    write: Callable[..., Any] = backend.write
    left = int(number)

    def counted(operations: Sequence[Operation], *guards: Any) -> Any:
        nonlocal left
        if all(isinstance(one, Read) for one in operations):
            return write(operations, *guards)
        left -= 1
        if left == 0 and when == "before":
            die()
        answer = write(operations, *guards)
        if left == 0 and when == "after":
            answer.add_done_callback(lambda _: die())
        return answer

    backend.write = counted


def put(client: coordlock.Client, log: Log, number: int, name: str) -> None:
    queue = client.work_queue(QUEUE)
    for count in range(number):
        item = f"{name}.{count}"
        log.say("puts", item)
        log.say("put", item, queue.put(item.encode()))


def take(client: coordlock.Client, log: Log, name: str) -> None:
    queue = client.work_queue(QUEUE, max_failures=1000)
    while True:
        try:
            item = queue.take(60)
        except WorkQueueEmpty:
            log.say("starves", name)
            return
        except coordlock.SessionLost:
            continue  # it was stopped for long
        if item.data == STOP:
            item.ack()
            return
        what = item.data.decode()
        log.say("begins", what, name, item.deliveries, item.token)
        try:
            if hash(what) % 5 == 0 and item.deliveries == 1:
                item.nack()
                continue
            item.check()
            log.say("ends", what, name, item.deliveries)
            item.ack()
        except LockLost:
            log.say("late", what, name, item.deliveries)
        else:
            log.say("done", what, name, item.deliveries)


def hold(client: coordlock.Client, log: Log, name: str) -> None:
    item = client.work_queue(QUEUE).take(60)
    log.say("begins", item.data.decode(), name, item.deliveries, item.token)
    sys.stdin.read()
    try:
        item.ack()
    except LockLost:
        log.say("late", item.data.decode(), name, item.deliveries)


def main() -> None:
    url, path, command, *arguments = sys.argv[1:]
    name = f"{command}-{os.getpid()}"
    with coordlock.connect(url) as client:
        log = Log(path)
        if command == "put":
            number, *step = arguments
            if step:
                dying_at(client, step[0])
            put(client, log, int(number), name)
        elif command == "hold":
            hold(client, log, name)
        else:
            if arguments:
                dying_at(client, arguments[0])
            take(client, log, name)


if __name__ == "__main__":
    main()

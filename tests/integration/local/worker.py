"""What the processes of the tests do: ``worker.py ROOT COMMAND ARGUMENTS...``.

``hold QUEUE`` enqueues, prints the token and waits. ``wait QUEUE`` prints its token, waits until it
is first, prints that, and leaves. ``fork QUEUE`` holds and leaves a child behind that outlives it.
``stop`` stops itself while it holds the counter. ``storm LOG KILLS`` lets children work and die.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from coordlock_local import LocalBackend
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner

WORKERS = 8


class Silent:
    """A listener that expects nothing."""

    def suspect(self, reason: str) -> None: ...

    def recovered(self) -> None: ...

    def lost(self, reason: str) -> None: ...


def connect(root: str) -> LocalBackend:
    backend = LocalBackend(root)
    backend.open(Silent()).result()
    return backend


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def enqueue(backend: LocalBackend, queue: str) -> tuple[Entry, Contender]:
    entry = Entry(queue, uuid.uuid4().hex, Mode.EX, Owner("host", os.getpid(), "worker"))
    [snapshot] = backend.enqueue([entry]).result()
    contender = snapshot.find(entry.id)
    assert contender is not None
    return entry, contender


def await_turn(backend: LocalBackend, me: Contender, queue: str) -> None:
    while before := backend.snapshot(queue, me).result().before(me):
        told = threading.Event()
        backend.watch(before[-1], 0, lambda _, told=told: told.set())  # type: ignore[misc]
        told.wait()


def hold(root: str, queue: str) -> None:
    backend = connect(root)
    _, contender = enqueue(backend, queue)
    say(contender.token)
    sys.stdin.read()


def wait(root: str, queue: str) -> None:
    backend = connect(root)
    entry, contender = enqueue(backend, queue)
    say(contender.token)
    await_turn(backend, contender, queue)
    say("first", time.monotonic())
    assert backend.withdraw([entry]).result()
    backend.close().result()


def fork(root: str, queue: str) -> None:
    backend = connect(root)
    _, contender = enqueue(backend, queue)
    backend.watch(contender, 0, lambda _: None)  # so that there is a thread, too
    child = os.fork()
    if child == 0:
        say("child", os.getpid())
        assert backend.heartbeat().exception() is not None
        backend.close().result()
        own = connect(root)
        say("enqueued", enqueue(own, "another")[1].token)
    signal.pause()


def stop(root: str) -> None:
    def stand_still(_: object) -> None:
        say("inside")
        os.kill(os.getpid(), signal.SIGSTOP)

    Counter(Directory.prepare(root)).hold(stand_still)
    say("outside")


def storm(root: str, log: str, kills: str) -> None:
    """Kill children at random while they lock; then let the last ones finish."""
    random.seed(7)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    finish = Path(log + ".finish")
    children = {_churn(root, descriptor, finish) for _ in range(WORKERS)}
    for _ in range(int(kills)):
        time.sleep(random.random() * 0.02)
        victim = random.choice(sorted(children))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        os.write(descriptor, f"killed {victim} 0\n".encode())
        children.remove(victim)
        children.add(_churn(root, descriptor, finish))
    finish.touch()
    statuses = [os.waitpid(child, 0)[1] for child in children]
    say(*statuses)


def _churn(root: str, log: int, finish: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        backend = connect(root)
        while not finish.exists():
            entry, contender = enqueue(backend, "q")
            if random.random() < 0.2:  # gives up
                backend.withdraw([entry]).result()
                continue
            await_turn(backend, contender, "q")
            os.write(log, f"enter {os.getpid()} {contender.token}\n".encode())
            os.write(log, f"leave {os.getpid()} {contender.token}\n".encode())
            assert backend.withdraw([entry]).result()
        backend.close().result()
    except BaseException as error:
        say(repr(error))
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]]
    commands = {"hold": hold, "wait": wait, "fork": fork, "stop": stop, "storm": storm}
    commands[sys.argv[2]](sys.argv[1], *sys.argv[3:])

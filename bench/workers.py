"""The near side of the processes that are measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from select import select
from typing import Any, Final, Self

from testbed.servers.guard import guarded

__all__ = ["Worker", "WorkerFailed", "crew"]

#: Seconds for a worker to close its session.
_PATIENCE: Final = 20


class WorkerFailed(Exception):
    """What went wrong in a worker."""


class Worker:
    """A process that runs ``subject``, a ``module:class``, and obeys; a context manager.

    Its log goes to this process' standard error; peers fill it with warnings, and ``quiet`` drops
    it. It leads a group of its own, with the processes that it starts: Ctrl-C in the terminal is
    for who gives the orders, and ends it in order.
    """

    def __init__(self, subject: str, *arguments: str, quiet: bool = False) -> None:
        self._command: Final = [sys.executable, "-m", "bench.worker", subject, *arguments]
        #: Answers that are to come.
        self._owed = 0
        self._stderr: Final = subprocess.DEVNULL if quiet else sys.stderr

    def __enter__(self) -> Self:
        self.start()
        self.ready()
        return self

    def start(self) -> None:
        """Start it without waiting, where many start together; `ready` waits."""
        self._process = subprocess.Popen(
            guarded(self._command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("COORDLOCK_")},
            start_new_session=True,
        )
        self._owed = 1

    def ready(self) -> None:
        """Return when it waits for orders. Raises `WorkerFailed`."""
        try:
            self.answer()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def dismiss(self) -> None:
        """Let it close its session and end, without waiting; `stop` waits."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def stop(self) -> None:
        """Let it close its session and end; by force if it does not, or is busy with an order."""
        self.dismiss()
        process = self._process
        assert process.stdout is not None
        if self._owed:
            self._kill()  # nobody waits for the answer, which may take minutes
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill()
            process.wait()
        process.stdout.close()

    def _kill(self) -> None:
        if self._process.poll() is None:  # else its number may be another's
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, order: str, **arguments: object) -> Any:
        """Give an order and wait for its answer. Raises `WorkerFailed`."""
        self.tell(order, **arguments)
        return self.answer()

    def tell(self, order: str, **arguments: object) -> None:
        """Give an order; `answer` waits for what comes of it."""
        assert self._process.stdin is not None
        self._owed += 1
        print(json.dumps({"do": order, "with": arguments}), file=self._process.stdin, flush=True)

    def answer(self, within: float | None = None) -> Any:
        """The answer to the order before. Raises `WorkerFailed`, also after ``within`` seconds."""
        assert self._process.stdout is not None
        if within is not None and not select([self._process.stdout], [], [], within)[0]:
            raise WorkerFailed(f"it did not answer within {within:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed("it ended")
        self._owed -= 1
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer["answer"]


@contextmanager
def crew(workers: list[Worker]) -> Iterator[list[Worker]]:
    """All of them, which start together, and end together with the block. Raises `WorkerFailed`."""
    with ExitStack() as stack:
        for worker in workers:
            worker.start()
            stack.callback(worker.stop)
        for worker in workers:
            stack.callback(worker.dismiss)  # all of them, before the first is waited for
        for worker in workers:
            worker.ready()
        yield workers

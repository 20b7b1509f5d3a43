"""Where the demos play: processes that contend for locks, and what they report."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.connection import Service, connected
from coordlock.cli.demo_worker import Ledger
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import Refused
from coordlock.cli.text import coloured, echo, printable
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.settings import Settings

__all__ = ["Run", "Worker", "staged"]

#: What a reader must not miss.
_ALARMING: Final = ("stopped", "accepted", "refused", "lost")
#: Seconds from one look at a queue to the next.
_MOMENT: Final = 0.02


@contextmanager
def staged(service: Service, ttl: str) -> Iterator[Stage]:
    """A stage that leaves no process and no file. Raises `ConfigurationError` without tokens."""
    with ExitStack() as stack:
        yield Stage(service.settings(ttl=ttl, label="demo"), service.url, stack)


class Stage:
    """A client, a directory and a clock for some runs. What begins on it ends with ``stack``."""

    def __init__(self, settings: Settings, url: str | None, stack: ExitStack) -> None:
        self.settings: Final = settings
        self.url: Final = url
        self.stack: Final = stack
        can = backend_for_scheme(settings.scheme).capabilities
        if not can.fenced:
            raise ConfigurationError(
                f"{settings.scheme}:// has no tokens, by which the ledger refuses stale writes"
            )
        self.is_leased: Final = can.leased
        self.directory: Final = stack.enter_context(TemporaryDirectory(prefix="coordlock-demo-"))
        self.client: Final = stack.enter_context(connected(settings))
        self._started = SYSTEM_CLOCK.now()

    def tell(self, who: str, text: str, event: str = "", at: float | None = None) -> None:
        """Print what happened ``at`` a time by the clock of leases, by default now."""
        seconds = (SYSTEM_CLOCK.now() if at is None else at) - self._started
        line = printable(f"{seconds:8.3f} s  {who:<10} {text}")
        echo(coloured(line, "red") if event in _ALARMING else line)


class Run:
    """A lock and a ledger, and workers that contend for them."""

    def __init__(self, stage: Stage, name: str = "", *, is_fenced: bool = True) -> None:
        self.name: Final = name
        self.lock: Final = f"demo-{uuid.uuid4().hex[:8]}"
        self.stage: Final = stage
        self.file: Final = str(Path(stage.directory, self.lock))
        self.fences: Final = f"{self.file}-fences" if is_fenced else ""
        #: How many writes were acknowledged, and how many refused.
        self.acknowledged = 0
        self.refused = 0

    def wait_for_queue(self, length: int) -> None:
        """Return when ``length`` contenders are in the queue."""
        while len(self.stage.client.admin.contenders(self.lock)) != length:
            time.sleep(_MOMENT)

    def evict_frozen(self, worker: Worker) -> None:
        """Remove the holder ``worker`` where no lease runs out."""
        if not self.stage.is_leased:
            self.wait_for_queue(2)
            holder, _ = self.stage.client.admin.contenders(self.lock)
            self.stage.client.admin.evict(holder)
            worker.tell("is evicted, as `coordlock evict` does: no lease runs out here", "stopped")

    def verdict(self) -> list[str]:
        """What is wrong with the ledger, which is printed."""
        entries = Ledger(self.file, self.fences).entries()
        wrong = [
            f"token {token} came after token {before}"
            for (before, _), (token, _) in itertools.pairwise(entries)
            if token < before
        ]
        balance = entries[-1][1] if entries else 0
        if balance != self.acknowledged:
            wrong.append(f"{self.acknowledged} updates were acknowledged, the balance is {balance}")
        state = f"CORRUPT: {'; '.join(wrong)}" if wrong else f"RIGHT: the balance is {balance}"
        self.stage.tell(f"{self.name} the demo".lstrip(), f"finds the ledger {state}")
        return wrong


class Worker:
    """A process of a run; it does what it is ordered to, and answers."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = f"{run.name} {name}".lstrip()
        task = [name, str(run.stage.settings.ttl), run.lock, run.file, run.fences]
        # Not on the command line, where every user of the machine could read a password.
        url = {} if run.stage.url is None else {"COORDLOCK_URL": run.stage.url}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coordlock.cli.demo_worker", *task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | url,
            process_group=0,  # Ctrl-C in the terminal is for the demo, which ends it
        )
        run.stage.stack.callback(self._end)
        self._answer()

    def order(self, what: str) -> None:
        """Let it do something: acquire, read, write or release."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()

    def told(self, since: str = "") -> None:
        """Print what came of the order, ``since`` what."""
        event, at, text = self._answer()
        self._run.acknowledged += event in ("wrote", "accepted")
        self._run.refused += event == "refused"
        self._run.stage.tell(self._name, text + since, event, float(at))

    def do(self, *orders: str) -> None:
        """Let it do one thing after the other."""
        for order in orders:
            self.order(order)
            self.told()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self.tell("is killed (SIGKILL) between its read and its write", "stopped")

    def freeze(self) -> None:
        """Stop it with SIGSTOP, as a long pause of its machine would."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)
        self.tell("is frozen (SIGSTOP) between its read and its write", "stopped")

    def thaw(self) -> None:
        """Let it go on, where it stopped, as if nothing had happened."""
        self.tell("is woken (SIGCONT), and goes on as if it held the lock")
        self._process.send_signal(signal.SIGCONT)

    def tell(self, text: str, event: str = "") -> None:
        """Print what happened to it."""
        self._run.stage.tell(self._name, text, event)

    def _answer(self) -> list[str]:
        """What happened, when, and in words. Raises `Refused` if it has failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode() or "failed 0 it ended"
        answer = line.rstrip("\n").split(" ", 2)
        if answer[0] == "failed":
            complain(f"{self._name}: {answer[2]}")
            raise Refused(Exit.FAILED)
        return answer

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

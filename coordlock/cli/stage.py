"""Where the demos play: processes that contend for a lock, and what they report."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
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

__all__ = ["Stage", "Worker"]

#: What a reader must not miss.
_ALARMING: Final = ("stopped", "accepted", "refused", "lost")
#: Seconds from one look at a queue to the next.
_MOMENT: Final = 0.02
_STARTED: Final = SYSTEM_CLOCK.now()


class Stage:
    """A lock and a ledger, and workers that contend for them. What begins here ends with ``stack``.

    Raises `ConfigurationError` where the service has no tokens.
    """

    def __init__(
        self,
        service: Service,
        ttl: str,
        stack: ExitStack,
        name: str = "",
        *,
        is_fenced: bool = True,
    ) -> None:
        self.name: Final = name
        self.settings: Final = service.settings(ttl=ttl, label="demo")
        can = backend_for_scheme(self.settings.scheme).capabilities
        if not can.fenced:
            raise ConfigurationError(
                f"{self.settings.scheme}:// has no tokens, by which the ledger refuses stale writes"
            )
        self._is_leased = can.leased
        self.stack: Final = stack
        directory = stack.enter_context(TemporaryDirectory(prefix="coordlock-demo-"))
        #: A lock of this demo's own, and what the workers share.
        self.lock: Final = Path(directory).name
        self.file: Final = str(Path(directory, "ledger"))
        self.fences: Final = f"{self.file}-fences" if is_fenced else ""
        self._client = stack.enter_context(connected(self.settings))
        #: Not on a command line, where every user of the machine could read a password.
        self.environment: Final = {} if service.url is None else {"COORDLOCK_URL": service.url}

    def tell(self, who: str, text: str, event: str = "") -> None:
        """Print what happened."""
        seconds = SYSTEM_CLOCK.now() - _STARTED
        line = printable(f"{seconds:8.3f} s  {f'{self.name} {who}'.lstrip():<10} {text}")
        echo(coloured(line, "red") if event in _ALARMING else line)

    def wait_for_queue(self, length: int) -> None:
        """Return when ``length`` contenders are in the queue."""
        while len(self._client.admin.contenders(self.lock)) != length:
            time.sleep(_MOMENT)

    def evict_frozen(self, worker: Worker) -> None:
        """Remove the holder ``worker`` where no lease runs out."""
        if not self._is_leased:
            self.wait_for_queue(2)
            holder, _ = self._client.admin.contenders(self.lock)
            self._client.admin.evict(holder)
            worker.tell("is evicted, as `coordlock evict` does: no lease runs out here", "stopped")

    def is_corrupt(self) -> bool:
        """Whether an update is missing in the ledger, or came too late; prints which."""
        entries = Ledger(self.file, self.fences).entries()
        wrong = [
            f"token {token} came after token {before}"
            for (before, _), (token, _) in itertools.pairwise(entries)
            if token < before
        ]
        balance = entries[-1][1] if entries else 0
        if balance != len(entries):  # each update adds 1
            wrong.append(f"{len(entries)} updates were written, the balance is {balance}")
        state = f"CORRUPT: {'; '.join(wrong)}" if wrong else f"RIGHT: the balance is {balance}"
        self.tell("the demo", f"finds the ledger {state}")
        return bool(wrong)


class Worker:
    """A process on a stage; it does what it is ordered to, and answers."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        task = [name, str(stage.settings.ttl), stage.lock, stage.file, stage.fences]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coordlock.cli.demo_worker", *task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | stage.environment,
            process_group=0,  # Ctrl-C in the terminal is for the demo, which ends it
        )
        stage.stack.callback(self._end)
        self._answer()

    def order(self, what: str) -> None:
        """Let it do something: acquire, read, write or release."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def answered(self, since: str = "") -> str:
        """Print what came of the order, ``since`` what; the event in a word."""
        event, text = self._answer()
        self.tell(text + since, event)
        return event

    def do(self, *orders: str) -> str:
        """Let it do one thing after the other; the last event in a word."""
        event = ""
        for order in orders:
            self.order(order)
            event = self.answered()
        return event

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
        self._stage.tell(self._name, text, event)

    def _answer(self) -> tuple[str, str]:
        """What happened, in a word and in words. Raises `Refused` if it has failed."""
        assert self._process.stdout is not None
        event, _, text = (self._process.stdout.readline() or "failed it ended").partition(" ")
        if event == "failed":
            complain(f"{self._name}: {text.rstrip()}")
            raise Refused(Exit.FAILED)
        return event, text.rstrip("\n")

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

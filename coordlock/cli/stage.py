"""Where the demos play: processes that contend for locks, and what they report."""

from __future__ import annotations

import itertools
import json
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
from typing import Any, Final

from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.connection import Service, connected
from coordlock.cli.demo_worker import Ledger
from coordlock.cli.text import coloured, echo, folded, milliseconds, printable, terminal_width
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.settings import Settings

__all__ = ["Run", "Stuck", "Worker", "staged"]

#: What happened, and what stands out of it.
_SENTENCES: Final = {
    "queue": "sees the queue: {holder} holds, {waiting} waiting",
    "read": "read the balance {balance}",
    "wrote": "wrote the balance {balance} with token {token}",
    "accepted": "wrote the balance {balance}: the stale write is ACCEPTED, though token {newest} "
    "has written",
    "released": "released the lock",
    "killed": "is killed (SIGKILL) between its read and its write",
    "frozen": "is frozen (SIGSTOP) between its read and its write",
    "evicted": "is evicted, as `coordlock evict` does: there is no lease here that could run out",
    "thawed": "is woken (SIGCONT), and goes on as if it held the lock",
    "refused": "is REFUSED by the ledger: token {token} is older than {newest} (StaleToken)",
    "verdict": "finds the ledger {state}",
    "lost": "learns that the lock is lost: {reason}",
}
_ALARMING: Final = ("killed", "frozen", "evicted", "refused", "lost", "accepted")
#: The columns before the further lines of a sentence.
_MARGIN: Final = 15
#: Seconds from one look at a queue to the next.
_MOMENT: Final = 0.02


@contextmanager
def staged(service: Service, ttl: str, *, as_json: bool) -> Iterator[Stage]:
    """A stage that leaves no process and no file. Raises `ConfigurationError` without tokens."""
    with ExitStack() as stack:
        settings = service.settings(ttl=ttl, label="demo")
        yield Stage(settings, service.url, stack, as_json)


class Stuck(Exception):
    """A worker has failed."""


class Stage:
    """A client, a directory and a clock for some runs. What begins on it ends with ``stack``."""

    def __init__(
        self, settings: Settings, url: str | None, stack: ExitStack, as_json: bool
    ) -> None:
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
        self._as_json = as_json
        self._started = SYSTEM_CLOCK.now()

    def say(self, text: str, colour: str = "") -> None:
        """A paragraph that is no event; not for programs."""
        if not self._as_json:
            for line in folded(printable(text), terminal_width()):
                echo(coloured(line, colour) if colour else line)

    def tell(self, run: str, worker: str, event: str, **facts: Any) -> None:
        """Print an event."""
        at = facts.pop("at", SYSTEM_CLOCK.now()) - self._started
        if self._as_json:
            named = {"run": run} if run else {}
            echo(json.dumps({"at": at, **named, "worker": worker, "event": event, **facts}))
            return
        head = f"{at:8.3f} s  {f'{run} {worker}'.strip():<10} "
        lines = folded(
            printable(_sentence(event, facts)), terminal_width(), taken=len(head), indent=_MARGIN
        )
        for number, line in enumerate(lines):
            shown = coloured(line, "red") if event in _ALARMING else line
            echo((" " * _MARGIN if number else head) + shown)


def _sentence(event: str, facts: dict[str, Any]) -> str:
    if event != "holds":
        return _SENTENCES.get(event, event).format(**facts)
    text = f"HOLDS the lock, token {facts['token']}, waited {milliseconds(facts['waited'])}"
    return f"{text}, {facts['since']}" if "since" in facts else text


class Run:
    """A lock and a ledger, and workers that contend for them."""

    def __init__(self, stage: Stage, name: str = "", *, is_fenced: bool = True) -> None:
        self.name: Final = name
        self.lock: Final = f"demo-{uuid.uuid4().hex[:8]}"
        self.stage: Final = stage
        file = str(Path(stage.directory, self.lock))
        self.fences: Final = f"{file}-fences" if is_fenced else ""
        self.file: Final = file
        self.ledger: Final = Ledger(file, self.fences)
        #: How many writes were acknowledged, and the tokens that were refused.
        self.acknowledged = 0
        self.refused: list[int] = []

    def wait_for_queue(self, length: int) -> None:
        """Return when ``length`` contenders are in the queue."""
        while len(self.stage.client.admin.contenders(self.lock)) != length:
            time.sleep(_MOMENT)

    def show_queue(self) -> None:
        """Tell who holds the lock, and how many wait."""
        queue = self.stage.client.admin.contenders(self.lock)
        holder = next((one.owner.label for one in queue if one.holding and one.owner), "nobody")
        waiting = sum(not one.holding for one in queue)
        self.stage.tell(self.name, "the demo", "queue", holder=holder, waiting=waiting)

    def evict_frozen(self, worker: Worker) -> None:
        """Remove the holder ``worker`` where no lease runs out."""
        if not self.stage.is_leased:
            self.wait_for_queue(2)
            holder, _ = self.stage.client.admin.contenders(self.lock)
            self.stage.client.admin.evict(holder)
            worker.tell("evicted")

    def problems(self) -> list[str]:
        """What is wrong with the ledger: nothing, one hopes."""
        entries = self.ledger.entries()
        wrong = [
            f"token {token} came after token {before}"
            for (before, _), (token, _) in itertools.pairwise(entries)
            if token < before
        ]
        balance = entries[-1][1] if entries else 0
        if balance != self.acknowledged:
            wrong.append(f"{self.acknowledged} updates were acknowledged, the balance is {balance}")
        return wrong

    def conclude(self, wrong: list[str], *, ok: bool) -> None:
        """Tell what is ``wrong`` with the ledger, and whether that is ``ok``: the last event."""
        facts = {"ok": ok, "acknowledged": self.acknowledged, "wrong": wrong}
        state = f"CORRUPT: {'; '.join(wrong)}" if wrong else "RIGHT"
        self.stage.tell(self.name, "the demo", "verdict", state=state, **facts)


class Worker:
    """A process of a run; it does what it is ordered to, and answers."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        task = {
            "worker": name,
            "lock": run.lock,
            "ledger": run.file,
            "fences": run.fences,
            "ttl": run.stage.settings.ttl,
        }
        # Not on the command line, where every user of the machine could read a password.
        url = {} if run.stage.url is None else {"COORDLOCK_URL": run.stage.url}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "coordlock.cli.demo_worker", json.dumps(task)],
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

    def told(self, since: str = "", **facts: Any) -> dict[str, Any]:
        """What came of the order, which is shown."""
        answer = self._answer()
        event = answer.pop("event")
        if since:
            facts["since"] = since
        if event == "wrote":
            self._run.acknowledged += 1
            newest = max((token for token, _ in self._run.ledger.entries()), default=0)
            if answer["token"] < newest:
                event, facts["newest"] = "accepted", newest
        elif event == "refused":
            self._run.refused.append(answer["token"])
        self._run.stage.tell(self._run.name, self._name, event, **answer, **facts)
        return answer

    def do(self, *orders: str) -> None:
        """Let it do one thing after the other."""
        for order in orders:
            self.order(order)
            self.told()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self.tell("killed")

    def freeze(self) -> None:
        """Stop it with SIGSTOP, as a long pause of its machine would."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)
        self.tell("frozen")

    def thaw(self) -> None:
        """Let it go on, where it stopped, as if nothing had happened."""
        self.tell("thawed")
        self._process.send_signal(signal.SIGCONT)

    def tell(self, event: str) -> None:
        """Show what happened to it."""
        self._run.stage.tell(self._run.name, self._name, event)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"event": "failed", "error": "it ended"}')
        if answer["event"] == "failed":
            raise Stuck(f"{self._name}: {answer['error']}")
        return answer

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

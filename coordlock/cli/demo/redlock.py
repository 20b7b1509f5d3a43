"""``coordlock demo redlock``: a pause and a clock that jumps each let two hold a lock."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from coordlock.cli.connection import Service
from coordlock.cli.demo.columns import Columns
from coordlock.cli.demo.crew import Crew, Event
from coordlock.cli.demo.ledger import balance_of
from coordlock.cli.demo.redis_servers import Server, check_service, servers
from coordlock.cli.demo.twin import Twin, play
from coordlock.cli.exits import Exit
from coordlock.cli.options import json_option, service_options
from coordlock.cli.parser import Parser
from coordlock.client import Client, connect
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["parser", "redlock"]

_SERVERS: Final = 5
_ROOT: Final = "/demo"
#: The runs, and what their columns are called.
_RUNS: Final = {"pause": "A PAUSE OF THE CLIENT", "clock": "A JUMP OF THREE CLOCKS"}
#: The time-to-live where nobody waits for its end. Heartbeats are so far apart that none comes soon
#: after the jump: it would set the keys again before B has the lock, or tell A of its loss.
_LONG: Final = "60s"


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock demo redlock", redlock, usage="[OPTIONS]", example="coordlock demo redlock"
    )
    service_options(parser)
    parser.option("--ttl", metavar="DURATION", default="2s", help="Time-to-live. Default: 2s.")
    json_option(parser)
    return parser.finished()


def redlock(*, service: Service, ttl: str, as_json: bool) -> int:
    """Watch a pause, and a clock that jumps, let two hold a Redlock.

    It starts five Redis servers of its own, for which `redis-server` must be installed. A takes the
    lock and reads a balance. In one run A is stopped (SIGSTOP) past its lease; in the other, the
    keys on three servers expire, as they do when the servers' clocks are set forward. B takes the
    lock, reads and writes. A goes on, and writes what it computed. The exit status is 0 if both
    runs lost an update.
    """
    check_service(service, "five")
    timeline = Columns(SYSTEM_CLOCK.now(), list(_RUNS), as_json=as_json)
    with (
        tempfile.TemporaryDirectory(prefix="coordlock-demo-") as directory,
        servers(_SERVERS, Path(directory)) as started,
    ):
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in started)
        url = f"redlock://{hosts}{_ROOT}?restart_delay=0"
        with connect(url, ttl=ttl) as client, Crew(url) as crew:
            timeline.say(f"One story, twice at the same time, on {_SERVERS} servers of Redis.")
            timeline.head(_RUNS)
            runs = {run: _Run(crew, client, timeline, run, started) for run in _RUNS}
            for name, run in runs.items():
                run.prepare(Path(directory), ttl if name == "pause" else _LONG)
            if not play(runs, crew, timeline):
                return Exit.FAILED
            for run in runs.values():
                run.conclude()
            timeline.flush()
            if not all(run.lost for run in runs.values()):
                timeline.say("WRONG: a run lost no update", "red")
                return Exit.FAILED
            timeline.say()
            timeline.say(
                "Both runs lost an update that was acknowledged. Redlock has no tokens, so nothing "
                "could have refused the late write.",
                "red",
            )
            return Exit.OK


class _Run(Twin):
    """A goes on when B has written; what it does until then depends on the run."""

    def __init__(
        self, crew: Crew, client: Client, timeline: Columns, run: str, started: list[Server]
    ) -> None:
        super().__init__(crew, client, timeline, run, leased=True)
        self._servers: Final = started
        self.lost = 0

    def go_on(self, event: Event) -> None:
        """Show ``event``, and do what comes next."""
        worker, kind = event["worker"], event["event"]
        self.counts[kind] += 1
        if kind not in ("ready", "last"):
            self._timeline.show(self._dated(event) if kind == "holds" else event)
        match kind:
            case "halfway":
                if self._run == "pause":
                    self._freeze(event)
                else:
                    self._jump()
                self._crew.order("B", self._run)
            case "last":
                self._crew.order("B", self._run)
            case "wrote" if worker == "B" and self._run == "pause":
                self._thaw("A")
            case "wrote" if worker == "B":
                self._crew.order("A", self._run)

    def _jump(self) -> None:
        """Let the lock's keys expire on a majority of the servers.

        A holds the lock as soon as a majority has answered: another server may get the key later.
        """
        at = SYSTEM_CLOCK.now()
        majority = self._servers[: _SERVERS // 2 + 1]
        for server in majority:
            while server.ask("PEXPIRE", f"{{{_ROOT}}}:lock:{self._lock}", "1") != b":1\r\n":
                time.sleep(0.001)
        self._tell("jumped", "the demo", at, servers=len(majority), of=_SERVERS)
        self._waiting_for = "the jump", at

    def conclude(self) -> None:
        """Count what was lost: the last event."""
        balance = balance_of(self._ledger.entries())
        self.lost = self.counts["wrote"] - balance
        facts = {"acknowledged": self.counts["wrote"], "balance": balance, "lost": self.lost}
        self._tell("counted", "the demo", **facts)

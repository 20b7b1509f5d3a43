"""``coordlock demo failover``: a clock that is behind makes a fence refuse the wrong one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from coordlock.cli.connection import Service
from coordlock.cli.demo.columns import Columns
from coordlock.cli.demo.crew import Crew, Event
from coordlock.cli.demo.redis_servers import Server, check_service, servers
from coordlock.cli.demo.twin import Twin, play
from coordlock.cli.exits import Exit
from coordlock.cli.options import json_option, service_options
from coordlock.cli.parser import Parser
from coordlock.client import connect
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["failover", "parser"]

#: The runs, what their columns are called, and whom the fence refuses.
_RUNS: Final = {"right": ("THE CLOCKS AGREE", "A"), "behind": ("THE NEW CLOCK IS BEHIND", "B")}
#: By how many microseconds it is behind.
_BEHIND: Final = 3_600_000_000
_TTL: Final = "60s"


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock demo failover", failover, usage="[OPTIONS]", example="coordlock demo failover"
    )
    service_options(parser)
    json_option(parser)
    return parser.finished()


def failover(*, service: Service, as_json: bool) -> int:
    """Watch a fence after a failover of Redis, and what a clock behind does.

    It starts a Redis server of its own, for which `redis-server` must be installed. A takes the
    lock, reads a balance, and is stopped (SIGSTOP). Another server without data takes the first
    one's place, as after a failover to a replica that lags. B takes the lock. A goes on, and writes
    what it computed. The exit status is 0 if the fence refuses A where the clocks agree, and B
    where the new server's clock is behind.
    """
    check_service(service, "one")
    timeline = Columns(SYSTEM_CLOCK.now(), list(_RUNS), as_json=as_json)
    with (
        tempfile.TemporaryDirectory(prefix="coordlock-demo-") as directory,
        servers(1, Path(directory)) as [server],
        connect(_url(server, "")) as client,
        Crew(None) as crew,
    ):
        timeline.say("One failover of Redis, for two locks, each with a fence.")
        timeline.head({run: title for run, (title, _) in _RUNS.items()})
        runs = {run: _Run(crew, client, timeline, run, leased=True) for run in _RUNS}
        for name, run in runs.items():
            run.server, run.all = server, list(runs.values())
            crew.url = _url(server, name)
            run.prepare(Path(directory), _TTL, str(Path(directory, f"fences-{name}")))
        if not play(runs, crew, timeline):
            return Exit.FAILED
        timeline.flush()
        if not all(run.is_as_told for run in runs.values()):
            timeline.say("WRONG: the fence refused others than it should have", "red")
            return Exit.FAILED
        timeline.say()
        timeline.say(
            "Tokens come from the server's clock. Where the new one is behind, the fence refused "
            "the lock's holder and accepted the late write. `coordlock doctor` compares the clocks "
            "of a primary and its replicas.",
            "red",
        )
        return Exit.OK


class _Run(Twin):
    """A stands still during the failover, and goes on when B has written or was refused."""

    server: Server
    all: list[_Run]

    def begin(self) -> None:
        """Let A take the lock, in one run with the tokens of a server whose clock is ahead."""
        if self._run == "behind":
            ahead = time.time_ns() // 1000 + _BEHIND
            self.server.ask("HSET", f"{{/{self._run}}}:state", "last", str(ahead))
        super().begin()

    def go_on(self, event: Event) -> None:
        """Show ``event``, and do what comes next."""
        worker, kind = event["worker"], event["event"]
        self.counts[kind] += 1
        self.counts[f"{worker} {kind}"] += 1
        if kind not in ("ready", "last", "lost"):
            self._timeline.show(self._dated(event) if kind == "holds" else event)
        if kind == "halfway":
            self._freeze(event)
            if all(one.counts["frozen"] for one in self.all):
                self._fail_over()
        elif kind == "last":
            self._crew.order("B", self._run)
        elif worker == "B" and kind in ("wrote", "refused") and not self.counts["thawed"]:
            self._thaw("A")

    def _fail_over(self) -> None:
        self.server.kill()
        self.server.start()
        for run in self.all:
            at = SYSTEM_CLOCK.now()
            clock = "an hour behind" if run._run == "behind" else "right"
            run._tell("replaced", "the demo", at, clock=clock)
            run._waiting_for = "the failover", at
            self._crew.order("B", run._run)

    @property
    def is_as_told(self) -> bool:
        """Whether the fence has refused the one that it should, and accepted the other."""
        refused = _RUNS[self._run][1]
        accepted = "A" if refused == "B" else "B"
        return bool(self.counts[f"{refused} refused"] and self.counts[f"{accepted} wrote"]) and (
            not self.counts[f"{accepted} refused"]
        )


def _url(server: Server, run: str) -> str:
    """Each run has a root of its own, because each root has tokens of its own."""
    return f"redis://127.0.0.1:{server.port}/{run}?restart_delay=0"

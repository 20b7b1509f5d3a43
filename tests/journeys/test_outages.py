"""A web service and two leaders, on real services: twenty seconds without the service of locks."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

import coordlock
from coordlock.errors import ClientClosed
from coordlock.runtime import log
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.ports import free_port
from tests.cli.command import Cli

pytestmark = [pytest.mark.faults, pytest.mark.long_on("redis", "zookeeper")]

BOUND = 120.0
OUTAGE_S = 20.0
#: Where a busy machine keeps a process from its processor, a single request takes longer.
MOST = 0.7

SERVICE = """
import logging
import os
from typing import Annotated
from fastapi import FastAPI
from coordlock import AsyncGrant
from coordlock.integrations.fastapi import LockMiddleware, held, lifespan

fail_fast = os.environ["FAIL_FAST"] == "1"
app = FastAPI(lifespan=lifespan(os.environ["LOCKS"], fail_fast=fail_fast))
app.add_middleware(LockMiddleware)

@app.get("/")
async def work(grant: Annotated[AsyncGrant, held("report", timeout=5)]) -> float:
    return grant.waited
"""


class Answer(NamedTuple):
    asked: float
    took: float
    status: int
    retry_after: int


@pytest.fixture(
    params=[
        pytest.param(name, marks=getattr(pytest.mark, name))
        for name in ("etcd", "redis", "zookeeper")
    ]
)
def service(request: pytest.FixtureRequest, root: str) -> Iterator[tuple[str, str, FaultProxy]]:
    """The URL of a service, its URL behind a proxy, and that."""
    parts = urlsplit(request.getfixturevalue(request.param).url)
    with FaultProxy(str(parts.hostname), int(parts.port or 0)) as proxy:
        begin = f"{request.param}://127.0.0.1"
        yield f"{begin}:{parts.port}{root}", f"{begin}:{proxy.port}{root}", proxy


@contextmanager
def outage(proxy: FaultProxy) -> Iterator[None]:
    proxy.refuse()
    proxy.drop_connections()
    yield
    proxy.heal()


@pytest.mark.parametrize("fail_fast", [True, False], ids=["fail_fast", "patient"])
def test_a_web_service_refuses_at_once_what_cannot_be_locked_and_works_again_soon(
    service: tuple[str, str, FaultProxy], fail_fast: bool, tmp_path: Path
) -> None:
    _, url, proxy = service
    (tmp_path / "service.py").write_text(SERVICE)
    port = free_port()
    environment = {**os.environ, "LOCKS": url, "FAIL_FAST": str(int(fail_fast))}
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "service:app"]
    with (
        open(tmp_path / "output", "wb") as output,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=output
        ) as server,
        httpx.Client(timeout=BOUND, base_url=f"http://127.0.0.1:{port}") as http,
    ):

        def ask() -> Answer:
            began = time.monotonic()
            try:
                answer = http.get("/")
            except httpx.TransportError:  # it is not up
                return Answer(began, 0.0, 0, 0)
            took = time.monotonic() - began
            again = int(answer.headers.get("Retry-After", 0))
            return Answer(began, took, answer.status_code, again)

        try:
            eventually(lambda: ask().status == 200, within=BOUND)
            began, answers = time.monotonic(), list[Answer]()
            with outage(proxy):
                while time.monotonic() < began + OUTAGE_S:
                    answers.append(ask())
                    time.sleep(0.05)
            healed = time.monotonic()
            eventually(lambda: ask().status == 200, within=BOUND)
            back = time.monotonic() - healed
        finally:
            server.kill()
    assert {answer.status for answer in answers} == {503}
    first, *others = answers
    assert first.took < 20
    if fail_fast:
        quick = [answer for answer in others if answer.took < 1]  # of 5, without it
        assert len(quick) > MOST * len(others) > 10
        assert 10 < answers[-1].retry_after <= 30
    else:
        assert len(answers) <= 6
    assert back < 15


@pytest.mark.long  # it measures seconds, which a machine that stands still takes, too
def test_a_leader_in_the_shell_is_back_about_as_soon_as_one_in_a_program(
    service: tuple[str, str, FaultProxy], tmp_path: Path
) -> None:
    direct, url, proxy = service
    cli, log = Cli(f"{url}?ttl=5", tmp_path), tmp_path / "log"
    terms: list[float] = []
    elected: list[float] = []
    stop = coordlock.Cancellation()

    def lead(term: coordlock.Term) -> None:
        terms.append(time.time())
        while stop.reason is None and not term.lost.wait(0.1):
            continue

    def run() -> None:
        with coordlock.connect(url, ttl=5) as client:
            client.election("program").run(lead, cancellation=stop)

    def watch(shell: coordlock.Election) -> None:
        with suppress(ClientClosed), shell.observe() as leaders:
            elected.extend(time.time() for leader in leaders if leader is not None)

    def started() -> list[float]:
        return list(map(float, log.read_text().split())) if log.exists() else []

    words = (
        "elect",
        "shell",
        "--grace",
        "1s",
        "--",
        "sh",
        "-c",
        "date +%s.%N >>log; exec sleep 600",
    )
    program = threading.Thread(target=run, daemon=True)
    program.start()
    with coordlock.connect(direct, ttl=5) as client, cli.started(*words) as shell:
        watcher = threading.Thread(target=watch, args=[client.election("shell")], daemon=True)
        watcher.start()
        for day in range(1, 3):
            eventually(lambda day=day: len(terms) == len(started()) == day, within=BOUND)  # type: ignore[misc]  # bound per day
            with outage(proxy):
                time.sleep(OUTAGE_S / 2)
            eventually(lambda day=day: len(terms) == len(started()) == day + 1, within=BOUND)  # type: ignore[misc]
            # `Election.run` would begin at the election of the shell's candidate. The two try again
            # at most a second apart.
            assert started()[-1] < elected[-1] + 1
            assert started()[-1] < terms[-1] + 2
        assert shell.poll() is None
    stop.cancel()
    program.join(BOUND)
    assert not program.is_alive()


def test_the_log_of_an_outage_names_each_loss_once(
    service: tuple[str, str, FaultProxy],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A holder, a waiter, a leader, a member and a consumer lose their session, and come back."""
    caplog.set_level(logging.INFO, "coordlock")
    direct, url, proxy = service
    stop, waited = coordlock.Cancellation(), list[Exception]()
    with (
        coordlock.connect(f"{url}?ttl=9s&request_timeout=10s") as client,
        coordlock.connect(f"{direct}?ttl=60s&request_timeout=30s") as other,
        other.lock("busy"),
    ):
        mine = str(client.settings)
        grant = client.lock("orders").acquire()
        member = client.group("web").join(b"x")
        queue = client.work_queue("mails")

        def wait() -> None:
            try:
                client.lock("busy").acquire()
            except coordlock.CoordlockError as error:
                waited.append(error)

        def lead(term: coordlock.Term) -> None:
            term.lost.wait(BOUND)

        def consume() -> None:
            queue.run(lambda item: None, cancellation=stop)

        election = client.election("scheduler")
        threads = [
            threading.Thread(target=wait),
            threading.Thread(target=lambda: election.run(lead, cancellation=stop)),
            threading.Thread(target=consume),
        ]
        for thread in threads:
            thread.start()
        eventually(election.leader, within=BOUND)
        eventually(lambda: len(other.lock("busy").contenders()) == 2, within=BOUND)
        log.flush(10)
        caplog.clear()
        with outage(proxy):
            eventually(lambda: waited, within=BOUND)
            time.sleep(OUTAGE_S)
        eventually(lambda: "leads from now on" in caplog.text, within=BOUND)
        log.flush(10)
        lines = [f"{one.levelname} {one.getMessage()}" for one in caplog.records]
        losses = [one for one in caplog.records if hasattr(one, "coordlock_reason")]
        stop.cancel("the test ends")
        assert grant.state is coordlock.GrantState.LOST
        member.release()
    for thread in threads:
        thread.join(BOUND)
    fields = [vars(one) for one in losses]
    assert sorted((one["coordlock_kind"], one["coordlock_name"]) for one in fields) == [
        ("election", "scheduler"),
        ("group", "web"),
        ("lock", "orders"),
    ]
    assert all(one["coordlock_held"] > 0 and one["coordlock_token"] for one in fields)
    loss = r"the \w+ session was lost: no heartbeat was acknowledged for [\d.]+ s"
    held = rf"\(token \d+\) was lost: {loss}; it was held for [\d.]+ s"
    expected = [
        r"WARNING the \w+ session \S+ is in doubt: .+",
        rf"WARNING lock 'orders' {held}",
        rf"WARNING group 'web' {held}",
        rf"WARNING election 'scheduler' {held}",
        rf"WARNING {re.escape(mine)}: {loss}; it had 3 grants and 1 waits",
        r"INFO election 'scheduler': campaigns again",
        rf"WARNING {re.escape(mine)}: \w+ is unavailable: .+",  # why no session could be opened
        rf"WARNING {re.escape(mine)}: session \S+ is open, back after \d\d s",
        r"INFO election 'scheduler': leads from now on, token \d+",
    ]
    for pattern in expected:
        assert len([line for line in lines if re.fullmatch(pattern, line)]) == 1, (pattern, lines)
    assert len(lines) == len(expected), lines

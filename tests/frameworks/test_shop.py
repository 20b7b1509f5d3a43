"""The example site runs as its README says: two hosts, with Django, Celery, cron and kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import URL

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.ports import free_port
from testbed.servers.postgres import Postgres

SHOP: Final = Path(__file__).parents[2] / "examples" / "shop"
BOUND: Final = 120.0


class Shop:
    """The site at work, and what its README shows a reader."""

    def __init__(self, locks: str, directory: Path, database: dict[str, str]) -> None:
        self.log = directory / "log"
        while (port := free_port()) > 65000:
            pass
        self.hosts = [f"http://127.0.0.1:{port + host}" for host in range(2)]
        line = [sys.executable, str(SHOP / "run.py"), locks, "--port", str(port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                line, env={**os.environ, **database}, stdout=log, stderr=log
            )

    def output(self) -> str:
        return self.log.read_text()

    def wait(self, condition: Callable[[], object]) -> None:
        try:
            eventually(condition, within=BOUND)
        except TimeoutError:
            pytest.fail(self.output())

    def wait_until_it_serves(self) -> coordlock.Client:
        """A client of its locks."""

        def serves() -> bool:
            try:
                return all(httpx.get(host).status_code == 200 for host in self.hosts)
            except httpx.HTTPError:
                assert self.process.poll() is None, self.output()
                return False

        self.wait(serves)
        told = re.search(r"export COORDLOCK_URL='(.*)'", self.output())
        assert told
        return coordlock.connect(told[1])

    def overview(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(self.hosts[0], timeout=30).json()
        return found

    def order(self, number: int, customer: str) -> int:
        url = f"{self.hosts[number % 2]}/order/book/{customer}"
        return httpx.post(url, timeout=30).status_code

    def wait_until_all_is_packed(self) -> None:
        self.wait(lambda: self.overview()["not yet packed"] == 0)
        assert self.overview()["empty parcels"] == 0

    def pid(self, words: str) -> int:
        """The one process that was started with these words."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = map(int, children.read_text().split())
        (found,) = (pid for pid in pids if words in Path(f"/proc/{pid}/cmdline").read_text())
        return found


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("etcd", marks=[pytest.mark.redis, pytest.mark.etcd, pytest.mark.postgres]),
    ]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """With etcd also on PostgreSQL, as in the containers; with Redis on SQLite."""
    with ExitStack() as stack:
        database: dict[str, str] = {}
        if request.param == "etcd":
            server: Postgres = request.getfixturevalue("postgres")
            database = variables(stack.enter_context(server.schema()))
        shop = Shop(request.param, tmp_path, database)
        yield shop
        shop.process.terminate()
        assert shop.process.wait(BOUND) == 143, shop.output()


def variables(url: URL) -> dict[str, str]:
    """What libpq is to read from the environment."""
    given = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGDATABASE": url.database,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGOPTIONS": url.query["options"],
    }
    return {name: str(value) for name, value in given.items() if value is not None}


@pytest.mark.long
def test_two_hosts_lose_no_order_and_do_nothing_twice(shop: Shop) -> None:
    with shop.wait_until_it_serves() as client, ThreadPoolExecutor(8) as customers:
        answers = customers.map(shop.order, range(60), ["alice", "bob", "carol"] * 20)
        assert set(answers) == {200}
        shop.wait_until_all_is_packed()

        def deliveries() -> int:
            """How often the stock was increased: nobody has ordered pens."""
            stock = shop.overview()["stock"]
            more: int = stock["pen"] - 1000
            return more // 10 if stock["book"] + 60 == stock["pen"] else 0

        def slots(job: str) -> int:
            return sum(slot.state == "done" for slot in client.job(job).info().slots)

        shop.wait(lambda: deliveries() > 0)
        shop.wait(lambda: deliveries() == slots("beat/restock"))
        shop.wait(lambda: shop.overview()["reports"] == slots("report") > 0)
        shop.wait(lambda: shop.overview()["handed over"] == shop.overview()["parcels"])
        said = shop.output()
        assert said.count("report of ") == shop.overview()["reports"]
        assert said.count("leads with token") == 1
        assert said.count("No migrations to apply") == 1
        assert "changes that are not yet reflected" not in said


@pytest.mark.faults
@pytest.mark.long
def test_the_other_host_goes_on_when_a_process_is_killed_or_paused(shop: Shop) -> None:
    with shop.wait_until_it_serves() as client:

        def packer() -> int:
            """The process that packs for alice."""
            found: list[int] = []

            def is_found() -> list[int]:
                queue = client.admin.contenders("parcels/alice")
                found[:] = [one.owner.pid for one in queue if one.holding and one.owner]
                return found

            shop.order(0, "alice")
            shop.wait(is_found)
            return found[0]

        os.kill(packer(), signal.SIGKILL)
        shop.wait_until_all_is_packed()

        paused = packer()
        os.kill(paused, signal.SIGSTOP)
        shop.order(1, "alice")
        shop.wait_until_all_is_packed()
        os.kill(paused, signal.SIGCONT)
        shop.wait(lambda: re.search("StaleToken|LockLost", shop.output()))

        for words in ("worker-1", "beat-1"):
            os.killpg(shop.pid(words), signal.SIGKILL)
        shop.order(0, "bob")
        shop.wait_until_all_is_packed()
        before = len(client.job("beat/restock").info().slots)
        shop.wait(lambda: len(client.job("beat/restock").info().slots) >= before + 2)

        leader = shop.overview()["courier"]
        os.kill(int(leader.rpartition(":")[2]), signal.SIGKILL)
        shop.wait(lambda: shop.overview()["courier"] not in (leader, None))
        shop.order(0, "bob")
        shop.wait_until_all_is_packed()
        shop.wait(lambda: shop.overview()["handed over"] == shop.overview()["parcels"])


def test_its_own_tests_pass() -> None:
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("COORDLOCK_", "PYTEST_"))
    }
    done = subprocess.run(
        line, cwd=SHOP, env=environment, capture_output=True, text=True, timeout=BOUND
    )
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout
    assert done.returncode == 0

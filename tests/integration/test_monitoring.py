"""What is shipped for operators: the exporter, alerts and the dashboard, with Prometheus."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from coordlock_postgresql.requests import Requests

import coordlock
from coordlock.cli.commands.exporter import _Readings as Readings
from coordlock.errors import AuthenticationFailed, JobNotRun
from coordlock.runtime.log import flush
from coordlock.telemetry import by_prefix, prometheus
from coordlock.telemetry.metrics import Change
from coordlock.telemetry.survey import SERVICE_METRICS, UP, Survey
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdServer
from testbed.servers.postgres import Postgres
from testbed.servers.prometheus import PrometheusServer, promtool
from testbed.servers.redis import Redis
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli

SHIPPED: Final = Path(prometheus.__file__).parent
POSTGRES: Final = "postgresql"
RULES: Final = SHIPPED / "rules.yaml"
DASHBOARD: Final = SHIPPED / "dashboard.json"


def values(found: list[Change]) -> dict[tuple[str, ...], float]:
    """By the metric's name and the attributes but the first, which is the backend."""
    return {(metric.name, *attributes[1:]): value for metric, value, attributes in found}


@pytest.fixture
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    if request.param == "local":
        return f"local://{tmp_path}/state?request_timeout=30s"
    service: Etcd | Postgres | Redis | ZooKeeper = request.getfixturevalue(request.param)
    return service.url_for(root, ttl="10s")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        services = [
            pytest.param(name, marks=getattr(pytest.mark, "postgres" if name == POSTGRES else name))
            for name in ("etcd", POSTGRES, "redis", "zookeeper")
        ]
        metafunc.parametrize("url", ["local", *services], indirect=True)


def test_a_survey_shows_what_is_in_the_service(url: str) -> None:
    with coordlock.connect(url) as client, ExitStack() as held:
        for name in ("order/1", "order/2", "nightly"):
            held.enter_context(client.lock(name))
        waiting = client.lock("order/1").try_acquire
        assert waiting() is None
        election = client.election("scheduler")
        held.enter_context(election.campaign())
        queue = client.work_queue("mails")
        queue.put_many([b"a", b"b"])
        with client.job("report").run(1):
            pass
        with pytest.raises(ZeroDivisionError), client.job("broken").run(1):
            1 / 0  # noqa: B018
        survey = Survey(client, ["nightly"], ["scheduler", "nobody"], ["mails"], group=by_prefix())
        found = values(survey.read())
        assert found["coordlock.service.up",] == 1
        assert found["coordlock.service.names", "order"] == 2
        assert found["coordlock.service.holders", "order"] == 2
        assert found["coordlock.service.holders", "nightly"] == 1
        assert found["coordlock.service.waiters", "order"] == 0
        assert found["coordlock.service.leaders", "scheduler"] == 1
        assert found["coordlock.service.leaders", "nobody"] == 0
        assert found["coordlock.queue.depth", "mails", "waiting"] == 2
        assert 0 <= found["coordlock.queue.oldest", "mails"] < 60
        assert found["coordlock.job.last_success", "report"] == pytest.approx(time.time(), abs=60)
        assert found["coordlock.job.failed", "report"] == 0
        assert found["coordlock.job.failed", "broken"] == 1
        assert found["coordlock.service.deadlocks",] == 0


@pytest.mark.postgres
def test_a_survey_on_postgresql_reads_all_names_by_one_statement(
    postgresql: Postgres, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs: list[str] = []
    ask = Requests.ask

    def counted(requests: Requests, verb: str, *rest: Any) -> Any:
        verbs.append(verb)
        return ask(requests, verb, *rest)

    names = [f"n{number}" for number in range(50)]
    with coordlock.connect(postgresql.url_for(root)) as client, client.multi_lock(names):
        monkeypatch.setattr(Requests, "ask", counted)
        found = values(Survey(client).read())
    assert found["coordlock.service.holders", "all"] == 50
    assert verbs.count("snapshot") < 4  # one for the names; the waits and a probe have their own
    assert len(verbs) < 20


def test_a_survey_shows_the_oldest_waiter_but_candidates_stand_by(tmp_path: Path) -> None:
    cli = Cli(f"local://{tmp_path}/state?request_timeout=30s", tmp_path)
    with (
        cli.holding("a"),
        cli.started("run", "a", "--", "true"),
        coordlock.connect(cli.url) as client,
        client.election("scheduler").campaign(),
        cli.started("elect", "scheduler", "--", "true"),
    ):
        cli.wait_for_queue("a", 2)
        cli.wait_for_queue("scheduler", 2)
        found = values(Survey(client, ["a"], ["scheduler"], group=str).read())
        assert found["coordlock.service.waiters", "a"] == 1
        assert 0 <= found["coordlock.service.oldest_waiter", "a"] < 60
        assert found["coordlock.service.waiters", "scheduler"] == 0
        found = values(Survey(client, group=str).read())
        assert found["coordlock.service.oldest_waiter", "scheduler"] == 0


def test_a_survey_that_takes_too_long_says_how_many_names_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nasty = ["\n", "\0", '"', "{}", "\\", "a b", "\u202e", "\U0001f512", "%", "../x"]
    with (
        coordlock.connect(f"local://{tmp_path}/state?request_timeout=30s") as client,
        client.multi_lock([*nasty, "z"]),
    ):
        found = values(Survey(client, group=str).read())
        assert found["coordlock.service.omitted",] == 0
        assert all(found["coordlock.service.holders", name] == 1 for name in nasty)
        text = prometheus.exposed(SERVICE_METRICS, Survey(client, group=str).read)
        assert (
            sum(line.startswith("coordlock_service_holders{") for line in text.splitlines()) == 11
        )
        now = iter([0.0, 0.0, 100.0, 100.0])  # one of the queues is read in time
        clock = SimpleNamespace(monotonic=partial(next, now), time=time.time)
        monkeypatch.setattr("coordlock.telemetry.survey._AT_ONCE", 1)
        monkeypatch.setattr("coordlock.telemetry.survey.time", clock)
        found = values(Survey(client, ["z"]).read())
    assert found["coordlock.service.omitted",] == len(nasty)
    assert found["coordlock.service.holders", "z"] == 1, "those that are named are read first"


def test_a_survey_of_a_service_that_is_away_says_so_and_one_that_is_back_goes_on(
    tmp_path: Path,
) -> None:
    with EtcdServer(tmp_path) as server:
        url = server.endpoint.url("/t", ttl="2s", request_timeout="1s", connect_timeout="1s")
        with coordlock.connect(url, fail_fast=True) as client:
            survey = Survey(client)
            assert values(survey.read())["coordlock.service.up",] == 1
            server.kill()
            eventually(lambda: values(survey.read()) == {("coordlock.service.up",): 0})
            server.start()
            eventually(lambda: values(survey.read())["coordlock.service.up",] == 1)


def test_a_part_that_cannot_be_read_is_logged_once_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: Survey) -> list[Change]:
        raise AuthenticationFailed("local", "no right to read jobs")

    with (
        coordlock.connect(f"local://{tmp_path}/state?request_timeout=30s") as client,
        client.lock("a"),
    ):
        survey = Survey(client, ["a"])
        with monkeypatch.context() as patched:
            patched.setattr(Survey, "_jobs", refused)
            survey.read()
            found = values(survey.read())
        assert found["coordlock.service.errors", "jobs"] == 1
        assert found["coordlock.service.up",] == found["coordlock.service.holders", "a"] == 1
        assert flush(10)
        assert caplog.text.count("jobs cannot be read") == 1
        assert values(survey.read())["coordlock.service.errors", "jobs"] == 0


def exported(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


@contextmanager
def exporting(cli: Cli, *options: str) -> Iterator[str]:
    """The address of a ``coordlock exporter`` that runs."""
    with cli.started("exporter", "--listen", "0", *options) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://(\S+)/metrics", line)
        assert found is not None, line
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_the_exporter_reads_the_service_once_for_many_scrapes(tmp_path: Path) -> None:
    cli = Cli(f"local://{tmp_path}/state?request_timeout=30s", tmp_path)
    with exporting(cli) as address:
        took = [
            line
            for _ in range(20)
            for line in exported(address).splitlines()
            if line.startswith("coordlock_service_read_duration")
        ]
    # It reads anew after five seconds, which a slow machine may need for 20 scrapes.
    assert len(set(took)) <= 3


@pytest.mark.parametrize(("took", "up", "fresh"), [(0.1, 1.0, 5), (2.0, 1.0, 20), (6.0, 0.0, 5)])
def test_the_exporter_keeps_a_reading_ten_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch, took: float, up: float, fresh: float
) -> None:
    now, begun = 0.0, []

    def read() -> list[Change]:
        nonlocal now
        begun.append(now)
        now += took
        return [(UP, up, ("etcd",))]

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(sys.modules["coordlock.cli.commands.exporter"], "time", clock)
    readings = Readings(cast("Survey", SimpleNamespace(read=read)))
    for _ in range(600):
        readings.latest()
        now += 0.1
    pauses = [after - before - took for before, after in pairwise(begun)]
    assert pauses
    assert pauses == pytest.approx([fresh] * len(pauses), abs=0.2)


def test_the_exporter_prints_once_and_tells_of_a_service_that_is_away(tmp_path: Path) -> None:
    cli = Cli(f"local://{tmp_path}/state?request_timeout=30s", tmp_path)
    with cli.holding("a"):
        shown = cli.run("exporter", "--print", "--lock", "a")
    assert shown.returncode == 0
    assert 'coordlock_service_holders{backend="local",group="a"} 1.0' in shown.stdout
    cli.environment["COORDLOCK_URL"] = "etcd://127.0.0.1:1?connect_timeout=100ms"
    shown = cli.run("exporter", "--print")
    assert shown.returncode == 69
    assert 'coordlock_service_up{backend="etcd"} 0.0' in shown.stdout


@pytest.mark.prometheus
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).with_name("alerts.yaml"))


APPLICATION: Final = """
    import sys, time, prometheus_client, coordlock
    from coordlock.telemetry import prometheus

    prometheus.instrument()
    server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
    print(server.server_port, flush=True)
    with coordlock.connect(sys.argv[1]) as client:
        queue = client.work_queue("mails")
        with client.election("scheduler").campaign(timeout=None):
            while True:
                with client.lock("order/1"):
                    queue.put(b"")
                    queue.take().ack()
                time.sleep(0.05)
"""


@contextmanager
def application(url: str) -> Iterator[str]:
    """The address of a process that leads or waits to lead, and works."""
    command = [sys.executable, "-c", textwrap.dedent(APPLICATION), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@pytest.mark.prometheus
def test_the_dashboards_queries_have_answers_from_two_processes_and_the_exporter(
    etcd: Etcd, root: str, tmp_path: Path
) -> None:
    url = etcd.endpoint.url(root)
    with coordlock.connect(url) as client:
        with client.job("nightly").run(1):
            pass
        with pytest.raises(JobNotRun), client.job("nightly").run(1):
            pass
    cli = Cli(url, tmp_path)
    with (
        application(url) as first,
        application(url) as second,
        exporting(cli, "--queue", "mails", "--election", "scheduler") as exporter,
        PrometheusServer(tmp_path / "prometheus", [first, second, exporter], RULES) as server,
    ):
        panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
        queries = [target["expr"] for panel in panels for target in panel["targets"]]
        assert len(queries) > 15
        for query in queries:
            asked = query.replace("$__rate_interval", "10s")
            eventually(lambda: server.query(asked), asked, within=60)  # noqa: B023
        # Two processes contend, and one of them leads.
        assert server.query("sum(leader_election_master_status)")[0]["value"][1] == "1"
        assert server.query("sum(coordlock_service_leaders)")[0]["value"][1] == "1"
        names = set(re.findall(r"coordlock_[a-z_]+", RULES.read_text()))
        for name in sorted(names):
            if not name.startswith("coordlock_job_next"):  # no schedule
                eventually(lambda: server.query(name), name)  # noqa: B023

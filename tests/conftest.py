"""Real servers for the tests, and what every test may ask for.

``etcd``, ``postgres``, ``redis`` and ``zookeeper`` start once per run, when the first test asks for
them. A test needs a service when it uses the fixture of that name or carries the marker of that
name. When a needed service is not installed, the run fails before the first test;
``--without=etcd`` leaves its tests out and says so. ``COORDLOCK_TEST_ETCD_URL``,
``COORDLOCK_TEST_POSTGRES_URL`` and so on name services that run already. ``COORDLOCK_TEST_JARS`` is
where ZooKeeper's jars are, if not in ``/usr/share/java``; ``make test RELEASE=...`` sets it.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from coordlock.runtime import log
from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.curator import curator_is_installed
from testbed.servers.etcd import Etcd, EtcdServer, ExternalEtcd, etcd_is_installed
from testbed.servers.postgres import (
    ExternalPostgres,
    Postgres,
    PostgresServer,
    pgbouncer_is_installed,
    postgres_is_installed,
)
from testbed.servers.prometheus import prometheus_is_installed
from testbed.servers.redis import (
    ExternalRedis,
    Redis,
    RedisServer,
    Redlock,
    redis_is_installed,
)
from testbed.servers.zookeeper import (
    ExternalZooKeeper,
    ZooKeeper,
    ZooKeeperServer,
    zookeeper_is_installed,
)

pytest_plugins = ["coordlock.integrations.pytest"]

#: Its own tests that start servers are `long`: many tests of `make test` fail without it.
TESTBED: Final = "tests/testbed/"
#: All of them have the marker ``faults``.
FAULTS: Final = ("tests/faults/", TESTBED)
IS_INSTALLED: Final[dict[str, Callable[[], bool]]] = {
    "curator": curator_is_installed,
    "etcd": etcd_is_installed,
    "pgbouncer": pgbouncer_is_installed,
    "postgres": postgres_is_installed,
    "prometheus": prometheus_is_installed,
    "redis": redis_is_installed,
    "spin": lambda: all(map(shutil.which, ("spin", "cc"))),
    "zookeeper": zookeeper_is_installed,
}
INSTALL: Final = (
    "apt-get install --no-install-recommends "
    "etcd-server etcd-client libzookeeper-java default-jre-headless libcurator-recipes-java "
    "libfaketime pgbouncer postgresql prometheus redis-server spin gcc libc6-dev"
)
# Hypothesis mixes constants of those of our modules that are loaded into its examples: they would
# depend on which tests the same worker has run before, and no failure could be repeated.
setattr(providers, "is_local_module_file", lambda path: False)  # noqa: B010 - it is private
# Repeatable and quick by default; COORDLOCK_EXAMPLES=5000 looks for new failures.
examples = os.environ.get("COORDLOCK_EXAMPLES")
settings.register_profile(
    "coordlock",
    deadline=None,
    derandomize=examples is None,
    max_examples=int(examples or 50),
    print_blob=True,
)
settings.load_profile("coordlock")
# For `make test-fast`, with --hypothesis-profile: `make test` has the other examples.
settings.register_profile("fast", settings.get_profile("coordlock"), max_examples=15)

left_out_key: Final = pytest.StashKey[dict[str, int]]()
#: Whether a worker of xdist has crashed.
crashed_key: Final = pytest.StashKey[bool]()


#: Tests of `coordlock.testing`, which others run without our markers.
LONG: Final = {"test_a_task_is_woken_though_its_client_releases_thousands_of_locks_meanwhile"}
#: What ``make test-fast`` leaves to ``make test``: it takes long.
SLOW: Final = {
    f"tests/{name}"
    for name in (
        "contract/test_fence_http.py",
        "contract/test_fence_sql.py",
        "docs/test_blocks.py",
        "docs/test_examples.py",
        "simulation/test_deadlocks.py",
        "simulation/test_polling.py",
        "unit/local/test_leaving.py",
        "unit/test_interrupted_recipes.py",
        "unit/test_interrupts.py",
        "unit/test_platforms.py",
        "unit/test_waiting_on_oneself.py",
        "unit/work/test_faults.py",
        "unit/work/test_running.py",
        "unit/zookeeper/test_data.py",
        "unit/zookeeper/test_places.py",
    )
}
#: The same, in files that are quick otherwise.
SLOW_TESTS: Final = {
    "test_a_crowd_of_waiters_costs_little_and_keeps_its_session",
    "test_a_hundred_thousand_names_make_as_many_series_as_one",
    "test_a_loss_is_told_and_another_session_opened_where_no_thread_can_be_started",
    "test_a_worker_that_is_lost_with_its_claim_takes_the_item_as_another_one",
    "test_after_broken_connections_the_newest_state_is_seen",
    "test_as_many_parties_as_there_may_be_pass",
    "test_mypy_refuses_options_that_there_are_not",
    "test_nobody_waits_for_ever",
    "test_several_consumers_claim_each_item_once_and_soon_meet_seldom",
    "test_short_waits_at_a_barrier_that_was_used_often_end_as_at_a_new_one",
    "test_the_same_bad_days_add_twice_where_nobody_keeps_who_has_added",
}
#: Tests that a stall of the machine can fail, by name, and why they are not mended yet: they run,
#: and fail no run. Each run says how many there are.
QUARANTINE: Final[dict[str, str]] = {
    "test_a_client_whose_files_were_closed_fails_and_loses_its_locks": (
        "gRPC may abort the process as soon as its poller meets a closed file"
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without",
        default="",
        metavar="SERVICES",
        help="leave out the tests that need these services: one, or several with commas",
    )


def pytest_configure(config: pytest.Config) -> None:
    left_out = {name for name in config.getoption("--without").split(",") if name}
    if unknown := left_out - set(IS_INSTALLED):
        raise pytest.UsageError(
            f"--without knows {', '.join(IS_INSTALLED)}, not {', '.join(unknown)}"
        )
    config.stash[left_out_key] = dict.fromkeys(sorted(left_out), 0)
    for name in IS_INSTALLED:
        config.addinivalue_line("markers", f"{name}: needs {name}, though not its fixture")
    hear_signals()


def hear_signals() -> None:
    """Let the tests and what they start hear the signals that ``nohup make test &`` ignores.

    A process ignores what the one that started it ignores, but not what that one handles. So this
    run still outlives a hangup and Ctrl-\\.
    """
    handlers = {
        signal.SIGINT: signal.default_int_handler,  # as Python does where it isn't ignored
        signal.SIGQUIT: lambda *_: None,
        signal.SIGHUP: lambda *_: None,
    }
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file.startswith(FAULTS):
            item.add_marker("faults")
        for name in IS_INSTALLED:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)
        name = getattr(item, "originalname", item.name)
        if is_long(item) or name in LONG:
            item.add_marker("long")
        if file in SLOW or name in SLOW_TESTS:
            item.add_marker("slow")
        if reason := QUARANTINE.get(name):
            # Not strict: it fails rarely. Each run prints how many there are.
            item.add_marker(pytest.mark.xfail(reason=f"in quarantine: {reason}", strict=False))
    yield  # -m and -k choose
    left_out = config.stash[left_out_key]
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    needed: set[str] = set()
    for item in items:
        needs = IS_INSTALLED.keys() & {mark.name for mark in item.iter_markers()}
        for name in needs & left_out.keys():
            left_out[name] += 1
        if needs & left_out.keys():
            dropped.append(item)
        else:
            kept.append(item)
            needed |= needs
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    if config.option.collectonly:
        return
    missing = [
        name
        for name, is_installed in IS_INSTALLED.items()
        if name in needed and not external_url(name) and not is_installed()
    ]
    if missing:
        raise pytest.UsageError(
            f"not installed: {', '.join(missing)}. Install with\n    {INSTALL}\n"
            f"or leave the tests out with --without={','.join(missing)}"
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash.get(crashed_key, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR  # no failure of a test's
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[left_out_key]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of xdist has ended, with an ``error`` if it crashed.

    Each has left out the same tests, and this process has none.
    """
    node.config.stash[crashed_key] = error is not None or node.config.stash.get(crashed_key, False)
    output: dict[str, dict[str, int]] = getattr(node, "workeroutput", {})
    node.config.stash[left_out_key].update(output.get("left_out", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for name, count in config.stash[left_out_key].items():
        terminalreporter.write_line(f"left out by --without: {count} tests that need {name}")
    terminalreporter.write_line(f"tests in quarantine: {len(QUARANTINE)}, see QUARANTINE")


def is_long(item: pytest.Item) -> bool:
    """Whether `make test` does without the test; CONTRIBUTING.md says why."""
    if item.nodeid.startswith(TESTBED):
        return any(map(item.get_closest_marker, ("etcd", "postgres", "redis", "zookeeper")))
    call = getattr(item, "callspec", None)
    values = {value for value in call.params.values() if isinstance(value, str)} if call else set()
    return any(values.intersection(mark.args) for mark in item.iter_markers("long_on"))


def external_url(service: str) -> str | None:
    """The URL of a service that somebody else runs, if one was named."""
    return os.environ.get(f"COORDLOCK_TEST_{service.upper()}_URL")


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """The run's etcd. Tests that stop, kill or pause one start their own `EtcdServer`."""
    if url := external_url("etcd"):
        yield ExternalEtcd(url)
        return
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """The run's ZooKeeper; see `etcd`."""
    if url := external_url("zookeeper"):
        yield ExternalZooKeeper(url)
        return
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """The run's PostgreSQL; see `etcd`."""
    if url := external_url("postgres"):
        yield ExternalPostgres(url)
        return
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql(postgres: Postgres) -> Postgres:
    """The same, with coordlock's schema."""
    postgres.set_up()
    return postgres


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """The run's Redis; see `etcd`."""
    if url := external_url("redis"):
        yield ExternalRedis(url)
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def redlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redlock]:
    """Five Redis that know nothing of each other; tests that stop one start their own."""
    with Redlock(tmp_path_factory.mktemp("redlock")) as servers:
        yield servers


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server's and a client's certificate for localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Without what earlier tests have logged: a thread writes it, which may be late."""
    assert log.flush(60)
    caplog.clear()
    return caplog


@pytest.fixture
def root() -> str:
    """A root path that no other test uses."""
    return f"/t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(
    params=[
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def shared_url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """A root of this test's own on each backend that processes can share.

    The services keep what is not released for a minute.
    """
    if request.param == "local":
        return f"local://{tmp_path}{root}?request_timeout=30s"
    server = urlsplit(request.getfixturevalue(request.param).url)
    return f"{request.param}://{server.netloc}{root}?ttl=60&request_timeout=30"


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test when it leaves threads behind, daemons too."""
    before = set(threading.enumerate())
    yield

    def left() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread not in before]

    try:
        eventually(lambda: not left(), within=60)
    except TimeoutError:
        pytest.fail(f"threads left behind: {left()}")

"""The observers against real servers: what they log is what the servers did."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from coordlock_faults.events import FOREVER
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, read
from coordlock_faults.truth import Life

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer
from testbed.servers.postgres import PostgresServer
from testbed.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, classpath
from testbed.truth.etcd import EtcdObserver
from testbed.truth.observer import Observer
from testbed.truth.postgresql import PostgresqlObserver
from testbed.truth.zookeeper import ZooKeeperObserver
from testbed.truth.zookeeper_log import Change, Transaction, read_log, read_logs

Server = EtcdServer | PostgresServer | ZooKeeperServer

BACKENDS = [
    pytest.param(name, marks=getattr(pytest.mark, name))
    for name in ("etcd", "postgres", "zookeeper")
]


@pytest.fixture(scope="module", params=BACKENDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that the tests may stop and kill."""
    directory = tmp_path_factory.mktemp("own")
    if request.param == "postgres":
        with PostgresServer(directory, replicates=True) as postgres:
            postgres.set_up()
            yield postgres
        return
    kind = {"etcd": EtcdServer, "zookeeper": ZooKeeperServer}[request.param]
    with kind(directory) as server:
        yield server


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "truth.jsonl", "truth") as journal:
        yield journal


@pytest.fixture
def truth(server: Server, root: str, journal: Journal) -> Iterator[Observer]:
    with observer([server], root, journal) as truth:
        yield truth


def observer(nodes: Sequence[Server], root: str, journal: Journal) -> Observer:
    for node in nodes:
        if isinstance(node, PostgresServer):
            return PostgresqlObserver(node, root, journal)
    etcds = [node for node in nodes if isinstance(node, EtcdServer)]
    zookeepers = [node for node in nodes if isinstance(node, ZooKeeperServer)]
    return (
        EtcdObserver(etcds, root, journal)
        if etcds
        else ZooKeeperObserver(zookeepers, root, journal)
    )


def history(tmp_path: Path) -> History:
    return read([tmp_path / "truth.jsonl"])


def lives(tmp_path: Path) -> list[Life]:
    found = history(tmp_path)
    assert not found.strays
    return found.truth.lives


def test_contenders_are_logged_with_what_clients_know_of_them(
    server: Server, truth: Observer, root: str, tmp_path: Path
) -> None:
    with coordlock.connect(server.url_for(root)) as client:
        first = client.lock("a/b ü").acquire()
        grants = [client.read_lock("shared").acquire(), client.semaphore("some", 3).acquire()]
        [standing] = client.admin.contenders("a/b ü")
        first.transaction().put("/t/data", b"1").put("/t/more", b"2").commit()
        first.release()
        truth.survey()
    found = lives(tmp_path)
    assert [(one.appeared.lock, one.appeared.claim, one.appeared.token) for one in found] == [
        (one.name, one.claim, one.token) for one in (first, *grants)
    ]
    assert found[0].appeared.key == standing.contender.key
    assert found[0].appeared.session == standing.session
    # The client was closed after the survey.
    assert [one.gone == FOREVER for one in found] == [False, True, True]


# ZooKeeper


@pytest.fixture
def zookeeper_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        yield server


@pytest.mark.zookeeper
def test_logs_are_read_as_the_servers_own_tool_reads_them(
    zookeeper_server: ZooKeeperServer, root: str
) -> None:
    server = zookeeper_server
    with coordlock.connect(server.url_for(root)) as client:
        grant = client.lock("a").acquire()
        grant.transaction().put("/data/x", b"1\n2").put("/data/y", b"").commit()
        grant.transaction().delete("/data/x").commit()
        client.read_lock("b").acquire()
        with pytest.raises(coordlock.errors.VersionMismatch):
            grant.transaction().expect("/data/y", 7).commit()
    server.stop()
    [file] = (server.data / "version-2").glob("log.*")
    tool = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
    command = ["java", "-cp", classpath(), tool, "-d", str(file)]
    told = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    lines = re.findall(rb"session 0x([0-9a-f]+) cxid 0x[0-9a-f]+ zxid 0x([0-9a-f]+) (\w+)", told)
    found = list(read_log(file))
    assert [(int(session, 16), int(zxid, 16)) for session, zxid, _ in lines] == [
        (one.session, one.zxid) for one in found
    ]
    kinds = [kind.decode() for *_, kind in lines]
    assert [one.closes for one in found] == [kind == "closeSession" for kind in kinds]
    changes = [[(one.kind, one.path) for one in each.changes] for each in found]
    made = [changes[place] for place, kind in enumerate(kinds) if kind == "multi"]
    # One that failed, because it was not known that the parent was missing; then it was made.
    assert [("create", "/data"), ("create", "/data/x"), ("create", "/data/y")] in made
    assert [("delete", "/data/x")] in made
    assert [] in made
    [closed] = [each for each, kind in zip(changes, kinds, strict=True) if kind == "closeSession"]
    assert [kind for kind, _ in closed] == ["delete", "delete"]


@pytest.mark.zookeeper
def test_a_log_that_ends_in_the_middle_of_a_transaction_is_read_up_to_there(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    with zookeeper_server.kazoo() as client:
        for number in range(5):
            client.create(f"/n{number}")
    zookeeper_server.kill()
    [file] = (zookeeper_server.data / "version-2").glob("log.*")
    whole = list(read_log(file))
    data = file.read_bytes().rstrip(b"\0")
    torn = tmp_path / "log.1"
    for cut in (1, 5, 30):
        torn.write_bytes(data[:-cut])
        assert list(read_log(torn)) == whole[:-1]
    torn.write_bytes(data[:-3] + b"xxx")
    assert list(read_log(torn)) == whole[:-1]


# Clusters


@pytest.mark.parametrize(
    ("changes", "contradicts"),
    [
        (["create q/x-0000000007", "create q/y-0000000008", "delete q/x-0000000007"], False),
        (["create q/x-0000000007", "create q/y-0000000007"], True),
        (["create q/x-0000000007", "delete q/x-0000000007", "create q/y-0000000006"], True),
        (["create q/x-0000000007", "create r/y-0000000007"], False),
        (
            [
                "create q/x-0000000000",
                "delete q/x-0000000000",
                "delete q",
                "create q",
                "create q/y-0000000000",
            ],
            False,
        ),
    ],
)
def test_a_sequence_that_is_given_out_again_contradicts_the_record(
    changes: list[str],
    contradicts: bool,
    root: str,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = ZooKeeperObserver([], root, journal)
    record: dict[int, Transaction] = {}
    for zxid, (kind, _, path) in enumerate((one.partition(" ") for one in changes), 1):
        done = Change("delete" if kind == "delete" else "create ephemeral", f"{root}/{path}")
        record[zxid] = Transaction(zxid, 1, (done,), closes=False)
    monkeypatch.setattr(truth, "_logged", lambda by=None: record)
    found = truth.contradictions()
    assert found.keys() == ({"q"} if contradicts else set())
    assert all(f"{root}/q/y-" in what for what in found.values())


def stands_still(server: ZooKeeperServer) -> bool:
    """Whether all of its threads have stopped, which takes them a moment."""
    states = [task.read_text() for task in Path(f"/proc/{server.pid}/task").glob("*/stat")]
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


@pytest.mark.zookeeper
def test_what_only_a_minority_has_logged_is_not_told(
    root: str, journal: Journal, tmp_path: Path
) -> None:
    with ZooKeeperEnsemble(tmp_path / "ensemble") as ensemble:
        truth = ZooKeeperObserver(ensemble.members, root, journal)
        truth.start()
        leader = ensemble.leader()
        others = [one for one in ensemble.members if one is not leader]
        with leader.kazoo() as client:
            client.ensure_path(f"{root}/q")
            known = read_logs(leader.data)
            for one in others:
                one.pause()
            eventually(lambda: all(map(stands_still, others)))
            client.create_async(f"{root}/q/x__lock__", ephemeral=True, sequence=True)
            eventually(lambda: read_logs(leader.data).keys() > known.keys(), "it to log")
            leader.kill()
            for one in others:
                one.kill()
        for one in others:
            one.spawn()
        for one in others:
            one.wait_until_answers()
        truth.survey()
        assert not lives(tmp_path)
        # Still there, in the log of the one that leads no more.
        assert any(
            "x__lock__" in c.path for t in read_logs(leader.data).values() for c in t.changes
        )
        truth.close()

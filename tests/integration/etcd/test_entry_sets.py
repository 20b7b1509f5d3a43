"""Sets of contenders on a real etcd: more of them than a transaction may have operations."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend

import coordlock
from coordlock import BackendError, BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry
from coordlock.testing.backend_contract import BOUND, OWNER
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import Join, keys


class LimitedEtcd(EtcdServer):
    """It takes ``limit`` operations in one transaction."""

    limit = 20

    def command(self) -> list[str]:
        return [*super().command(), f"--max-txn-ops={self.limit}"]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with LimitedEtcd(tmp_path_factory.mktemp("limited")) as server:
        yield server


def names(number: int) -> list[str]:
    return [f"n{index}" for index in range(number)]


def test_sixty_four_locks_fit_in_one_step_and_an_error_says_so(
    etcd: Etcd, root: str, no_leaks: None
) -> None:
    with coordlock.connect(etcd.url_for(root)) as client:
        client.multi_lock(names(64)).acquire(timeout=BOUND).release()
        with pytest.raises(BackendError, match=r"each of several locks takes two .*--max-txn-ops"):
            client.multi_lock(names(65)).acquire(timeout=BOUND)


@pytest.mark.parametrize("number", [11, 20, 21, 150])
def test_what_is_too_many_leaves_nothing_behind(
    limited: EtcdServer, root: str, number: int, caplog: pytest.LogCaptureFixture, no_leaks: None
) -> None:
    """More than twenty are too many to be deleted in one step, too."""
    with caplog.at_level(logging.WARNING), coordlock.connect(limited.url_for(root)) as client:
        client.multi_lock(names(10)).acquire(timeout=BOUND).release()
        with pytest.raises(BackendError, match="--max-txn-ops") as caught:
            client.multi_lock(names(number)).acquire(timeout=BOUND)
        assert not isinstance(caught.value, BackendUnavailable)
        eventually(lambda: not client._engine.tickets)
        assert keys(limited, root) == []
    assert caplog.messages == []


def test_a_set_is_withdrawn_though_the_limit_has_become_lower(
    tmp_path: Path, root: str, join: Join
) -> None:
    entries = [Entry(name, uuid.uuid4().hex, Mode.EX, OWNER) for name in names(30)]
    server = LimitedEtcd(tmp_path)
    server.limit = 60
    with server:
        party = join(server.url_for(root, ttl="60s"))
        backend = party.backend
        assert isinstance(backend, EtcdBackend)
        backend.enqueue(entries).result(BOUND)
        server.limit = 20
        server.restart()
        assert DisturbedSuite.repeated(lambda: backend.withdraw(entries)) is True
        assert keys(server, root) == []
        assert backend.withdraw(entries).result(BOUND) is False

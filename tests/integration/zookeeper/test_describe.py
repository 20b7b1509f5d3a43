from __future__ import annotations

import pytest

from coordlock.errors import BackendUnavailable
from testbed.servers.ports import free_port
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND, Parties
from tests.integration.zookeeper.test_sessions import answering


def test_the_servers_tell_their_versions_without_a_session(
    zookeeper: ZooKeeper, parties: Parties
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    live = zookeeper.endpoint.hosts[0]
    party = parties(f"zookeeper://{live},{dead}/x", opened=False)
    info = party.backend.describe().result(BOUND)
    assert info.service == "ZooKeeper"
    assert info.version.startswith("3.")
    assert info.endpoints == (live, dead)
    assert info.warnings[0] == f"{dead} does not answer: Connection refused"


def test_nobody_answers(parties: Parties) -> None:
    party = parties(f"zookeeper://127.0.0.1:{free_port()}/x", opened=False)
    with pytest.raises(BackendUnavailable, match="Connection refused"):
        party.backend.describe().result(BOUND)


def test_a_server_that_does_not_tell_its_version(parties: Parties) -> None:
    with answering(b"srvr is not executed because it is not in the whitelist.\n") as port:
        party = parties(f"zookeeper://127.0.0.1:{port}/x", opened=False)
        info = party.backend.describe().result(BOUND)
    assert info.version == "unknown"
    assert info.warnings == ("the version is not known: 'srvr' is not in 4lw.commands.whitelist",)

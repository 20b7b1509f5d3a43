"""Logging in to etcd, and Ctrl-C."""

from __future__ import annotations

import coordlock_etcd
from coordlock_etcd.transport.cluster import Endpoint
from coordlock_etcd.transport.connection import Connection

from coordlock.errors import BackendUnavailable
from testbed.servers.ports import free_port
from tests.unit.signals import moments


def test_a_login_that_ctrl_c_struck_keeps_nobody_waiting() -> None:
    # Where nobody listens, a login is answered, too: it failed.
    endpoints = [Endpoint(f"127.0.0.1:{free_port()}")]
    connection = Connection(endpoints, 5, ("somebody", "s3cret"))
    assert connection.login is not None
    try:
        for strike in moments(10, coordlock_etcd):
            strike(connection.login.token)
            for _ in range(2):
                assert isinstance(connection.login.token().exception(20), BackendUnavailable)
    finally:
        connection.close()

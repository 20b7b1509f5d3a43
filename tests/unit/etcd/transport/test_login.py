"""Logging in to etcd, and Ctrl-C."""

from __future__ import annotations

import itertools

import coordlock_etcd
from coordlock_etcd.transport.cluster import Endpoint
from coordlock_etcd.transport.connection import Connection

from coordlock.errors import BackendUnavailable
from testbed.servers.ports import free_port
from tests.unit.signals import interrupted


def test_a_login_that_ctrl_c_struck_keeps_nobody_waiting() -> None:
    # Where nobody listens, a login is answered, too: it failed.
    endpoints = [Endpoint(f"127.0.0.1:{free_port()}")]
    connection = Connection(endpoints, 5, ("somebody", "s3cret"))
    try:
        for number in itertools.count(1):
            came = interrupted(connection.login.token, number, within=coordlock_etcd)
            for _ in range(2):
                assert isinstance(connection.login.token().exception(20), BackendUnavailable)
            if not came:
                break
        assert number > 10
    finally:
        connection.close()

"""What a ZooKeeper URL may say; nothing here connects."""

from __future__ import annotations

import pytest
from coordlock_zookeeper import ZookeeperBackend
from coordlock_zookeeper.access import Access

from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SystemTimers


def access(url: str) -> Access:
    return Access.of(configure(url))


def test_hosts_get_the_default_port() -> None:
    assert access("zookeeper://a,b:2281,[::1]/x").hosts == "a:2181,b:2281,[::1]:2181"


def test_credentials_are_a_digest_unless_sasl_is_asked_for() -> None:
    assert access("zookeeper://me:p%3Aw@a/x").digest == "me:p:w"
    by_sasl = access("zookeeper://me:pw@a/x?auth=sasl")
    assert by_sasl.digest is None
    assert by_sasl.sasl == {"mechanism": "DIGEST-MD5", "username": "me", "password": "pw"}
    assert not access("zookeeper://a/x").identified


@pytest.mark.parametrize("auth", ["digest", "sasl"])
def test_the_password_is_not_shown(auth: str) -> None:
    assert "pass-word" not in repr(access(f"zookeeper://me:pass-word@a/x?auth={auth}"))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("zookeeper:///x", "needs a host"),
        ("zookeeper://me@a/x", "user name and a password"),
        ("zookeeper://a/x?auth=sasl", "'auth': sasl needs"),
        ("zookeeper://a/x?auth=kerberos", "'auth'"),
        ("zookeeper://a/x?acl=creator", "'acl': creator needs"),
        ("zookeeper://a/x?acl=all", "'acl'"),
        ("zookeeper://a/x?token=zxid", "'token'"),
        ("zookeeper://m%3Ae:pw@a/x", "colon"),
        ("zookeeper://a/x?ca=/nowhere/ca.pem", "'ca' needs tls=true"),
        ("zookeeper://a/x?tls=true&ca=/nowhere/ca.pem", "'ca': cannot read /nowhere/ca.pem"),
        ("zookeeper://a/x?tls=true&cert=/nowhere/c.pem", "'cert': cannot read /nowhere/c.pem"),
        ("zookeeper://a/x?tls=true&key=/nowhere/k.pem", "'key' needs option 'cert'"),
    ],
)
def test_what_cannot_work_is_named(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ZookeeperBackend.configure(configure(url), timers=SystemTimers())


def test_configuring_starts_nothing() -> None:
    backend = ZookeeperBackend.configure(
        configure("zookeeper://no-such-host.invalid/x"), timers=SystemTimers()
    )
    backend.close().result(60)

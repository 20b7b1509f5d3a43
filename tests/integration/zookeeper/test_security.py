"""TLS, logins and access lists, against servers that insist on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from coordlock import connect
from coordlock.errors import AuthenticationFailed, BackendUnavailable, ConfigurationError
from coordlock.model.claim import Mode
from coordlock.runtime.log import flush
from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.ports import free_port
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer
from tests.integration.refusing import check_nothing_stays
from tests.integration.zookeeper.conftest import BOUND, Parties, new_entry

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("sasl"), sasl=True) as server:
        yield server


@pytest.fixture(scope="module")
def tls(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ZooKeeperServer]:
    directory = tmp_path_factory.mktemp("tls")
    with ZooKeeperServer(directory, tls=certificates, mutual=True) as server:
        yield server


def as_user(zookeeper: ZooKeeper, user: str, root: str, **options: object) -> str:
    url = zookeeper.url_for(root, **options)
    return url.replace("zookeeper://", f"zookeeper://{user}@")


class TestDigest:
    def test_the_same_credentials_share_locks(
        self, zookeeper: ZooKeeper, root: str, parties: Parties
    ) -> None:
        one = parties(as_user(zookeeper, "ann:secret", root))
        two = parties(as_user(zookeeper, "ann:secret", root))
        _, first, _ = one.enqueue()
        _, second, snapshot = two.enqueue(claim=Mode.PR)
        assert [c.key for c in snapshot.contenders] == [first.key, second.key]
        assert two.backend.evict(first).result(BOUND) is True

    @pytest.mark.parametrize("user", ["ann:wrong", "bob:secret", ""])
    def test_other_credentials_are_refused(
        self, zookeeper: ZooKeeper, root: str, parties: Parties, user: str
    ) -> None:
        _, contender, _ = parties(as_user(zookeeper, "ann:secret", root)).enqueue()
        url = as_user(zookeeper, user, root) if user else zookeeper.url_for(root)
        other = parties(url)
        for request in (
            other.backend.enqueue([new_entry()]),
            other.backend.enqueue([new_entry("another")]),
            other.backend.snapshot("q"),
            other.backend.evict(contender),
            other.backend.queues(),
        ):
            with pytest.raises(AuthenticationFailed, match=rf"node {root}(/\w+)? does not"):
                request.result(BOUND)

    def test_open_nodes_can_be_used_by_everybody(
        self, zookeeper: ZooKeeper, root: str, parties: Parties
    ) -> None:
        ann = parties(as_user(zookeeper, "ann:secret", root, acl="open"))
        _, contender, _ = ann.enqueue()
        anybody = parties(zookeeper.url_for(root))
        anybody.enqueue()
        assert anybody.backend.evict(contender).result(BOUND) is True

    def test_a_watch_needs_no_right_to_read(
        self, zookeeper: ZooKeeper, root: str, parties: Parties
    ) -> None:
        """Another user's node in a queue that is open to all."""
        anybody = parties(zookeeper.url_for(root))
        anybody.enqueue()
        ann = parties(as_user(zookeeper, "ann:secret", root))
        entry, contender, snapshot = ann.enqueue()
        called: list[int] = []
        anybody.backend.watch(contender, snapshot.revision, lambda _: called.append(1))
        anybody.recovers()
        assert called == []
        ann.backend.withdraw([entry]).result(BOUND)
        anybody.recovers()  # each heartbeat asks
        eventually(lambda: called)
        anybody.recovers()
        assert called == [1]

    def test_a_queue_that_may_not_be_read_is_left_as_it_was(
        self, zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
    ) -> None:
        """The create succeeds, the list does not: nobody must be left standing in the queue."""
        blind = [make_acl("world", "anyone", create=True, delete=True)]
        kazoo.ensure_path(root)
        kazoo.create(f"{root}/q", acl=[*blind, make_digest_acl("ann", "secret", all=True)])
        kazoo.add_auth("digest", "ann:secret")
        party = parties(zookeeper.url_for(root))
        with pytest.raises(AuthenticationFailed):
            party.backend.enqueue([new_entry()]).result(BOUND)
        eventually(lambda: kazoo.get_children(f"{root}/q") == [])
        assert kazoo.exists(f"{root}/q").cversion == 2  # one came, and went

    def test_what_is_given_up_while_a_right_is_missing_leaves_when_it_is_back(
        self, zookeeper: ZooKeeper, root: str, kazoo: Any
    ) -> None:
        read_only = [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)]

        def set_acls(acls: list[Any]) -> None:
            for name in ("held", "busy"):
                kazoo.set_acls(f"{root}/{name}", acls)

        url = zookeeper.url_for(root)
        with connect(url) as client, connect(url) as other:
            check_nothing_stays(
                client, other, lambda: set_acls(read_only), lambda: set_acls(OPEN_ACL_UNSAFE)
            )

    def test_the_password_is_in_no_log(
        self,
        zookeeper: ZooKeeper,
        root: str,
        parties: Parties,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        logging.getLogger("coordlock.zookeeper.kazoo").setLevel(1)
        caplog.set_level(1)
        try:
            party = parties(as_user(zookeeper, "ann:pass-word", root))
            party.enqueue()
            party.backend.close().result(BOUND)
        finally:
            logging.getLogger("coordlock.zookeeper.kazoo").setLevel(logging.ERROR)
        assert flush(30)
        assert "Connecting to" in caplog.text  # kazoo did log
        assert "pass-word" not in caplog.text


class TestSasl:
    def test_a_login_is_accepted_and_owns_its_nodes(
        self, sasl: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        party = parties(sasl.url_for(root))
        _, contender, _ = party.enqueue()
        with sasl.kazoo() as kazoo:
            (acl,), _ = kazoo.get_acls(contender.key)
        assert (acl.id.scheme, acl.id.id) == ("sasl", sasl.USER)

    def test_a_wrong_password_is_refused_at_once(
        self, sasl: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        url = sasl.url_for(root).replace(sasl.PASSWORD, "wrong-password")
        party = parties(url, opened=False)
        with pytest.raises(AuthenticationFailed):
            party.opening().result(BOUND)

    def test_a_client_without_a_login_is_refused(
        self, sasl: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        party = parties(f"zookeeper://{sasl.endpoint.hosts[0]}{root}", opened=False)
        with pytest.raises(AuthenticationFailed):
            party.opening().result(BOUND)

    def test_a_session_survives_a_restart(
        self, sasl: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        party = parties(sasl.url_for(root, ttl="30s"))
        _, contender, _ = party.enqueue()
        sasl.restart()
        party.recovers()
        assert party.ids() == [contender.id]


class TestTls:
    def test_both_sides_show_certificates(
        self, tls: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        party = parties(tls.url_for(root))
        for _ in range(20):
            party.enqueue()
        assert len(party.backend.snapshot("q", owners=True).result(BOUND).contenders) == 20
        assert party.backend.describe().result(BOUND).version.startswith("3.")

    def test_an_authority_that_is_not_trusted_is_refused_with_the_reason(
        self, tls: ZooKeeperServer, root: str, parties: Parties, tmp_path: Path
    ) -> None:
        other = Certificates(tmp_path / "other")
        url = tls.url_for(root, ca=other.ca)
        party = parties(url, opened=False)
        with pytest.raises(BackendUnavailable, match="certificate verify failed"):
            party.open()

    def test_another_hosts_certificate_is_refused(
        self, tls: ZooKeeperServer, root: str, parties: Parties
    ) -> None:
        # The server's address, spelled as its certificate does not spell it.
        party = parties(tls.url_for(root).replace("127.0.0.1", "127.1"), opened=False)
        with pytest.raises(BackendUnavailable, match=r"not valid for '127\.1'"):
            party.open()

    def test_each_server_has_its_own_reason(
        self, tls: ZooKeeperServer, root: str, parties: Parties, tmp_path: Path
    ) -> None:
        """The one that refuses the connection does not hide what TLS has found at the other."""
        url = tls.url_for(root, ca=Certificates(tmp_path / "other").ca)
        _, _, here = url.partition("://")
        party = parties(f"zookeeper://127.0.0.1:{free_port()},{here}", opened=False)
        with pytest.raises(BackendUnavailable) as caught:
            party.open()
        assert "certificate verify failed" in str(caught.value)
        assert "refused" in str(caught.value)

    def test_an_encrypted_key_is_refused(
        self, certificates: Certificates, parties: Parties, tmp_path: Path
    ) -> None:
        """And nobody is asked for the pass phrase on the terminal."""
        plain = load_pem_private_key(certificates.client_key.read_bytes(), None)
        encryption = BestAvailableEncryption(b"secret")
        key = tmp_path / "encrypted.pem"
        key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        url = f"zookeeper://h/x?tls=true&cert={certificates.client}&key={key}"
        with pytest.raises(ConfigurationError, match=rf"'key': {key} is encrypted"):
            parties(url, opened=False)

    def test_files_that_are_no_certificates_are_named(
        self, tls: ZooKeeperServer, parties: Parties, tmp_path: Path
    ) -> None:
        (tmp_path / "empty.pem").touch()
        for option in ("ca", "cert"):
            with pytest.raises(ConfigurationError, match=rf"options? '{option}'.*empty\.pem"):
                parties(tls.url_for("/x", **{option: tmp_path / "empty.pem"}), opened=False)

"""etcd servers: one node, plain or secured, and clusters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, Self

from testbed.servers.certificates import Certificates
from testbed.servers.cluster import Cluster
from testbed.servers.endpoint import Endpoint, External, Service
from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess

__all__ = ["Etcd", "EtcdCluster", "EtcdServer", "ExternalEtcd", "etcd_is_installed"]

ROOT_PASSWORD: Final = "root-password"


def etcd_is_installed() -> bool:
    """Whether the server and its command-line client are on the path."""
    return shutil.which("etcd") is not None and shutil.which("etcdctl") is not None


class Etcd(Service):
    """What tests ask of an etcd, whoever started it: the real ``etcdctl``."""

    @property
    def administrator(self) -> Endpoint:
        """The same with the credentials that ``etcdctl`` uses."""
        return self.endpoint

    def etcdctl(self, *arguments: str, stdin: str = "") -> str:
        """The output of ``etcdctl ARGUMENTS``; raises `subprocess.CalledProcessError`.

        The error's ``stderr`` says what etcd refused.
        """
        return subprocess.run(
            self.etcdctl_command(*arguments),
            input=stdin,
            env=self.etcdctl_environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    def etcdctl_command(self, *arguments: str) -> list[str]:
        """The command line, for tests that start it themselves: ``etcdctl lock ...``."""
        return ["etcdctl", *arguments]

    def etcdctl_environment(self) -> dict[str, str]:
        """The environment in which ``etcdctl`` finds this server and its credentials."""
        admin = self.administrator
        scheme = "https" if admin.options.get("tls") == "true" else "http"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCDCTL_")}
        environment |= {
            "ETCDCTL_API": "3",
            "ETCDCTL_COMMAND_TIMEOUT": "60s",  # by default 5 s, as that of the next
            "ETCDCTL_DIAL_TIMEOUT": "60s",
            "ETCDCTL_ENDPOINTS": ",".join(f"{scheme}://{host}" for host in admin.hosts),
        }
        if admin.username is not None:
            environment["ETCDCTL_USER"] = f"{admin.username}:{admin.password}"
        for option, variable in (("ca", "CACERT"), ("cert", "CERT"), ("key", "KEY")):
            if option in admin.options:
                environment[f"ETCDCTL_{variable}"] = admin.options[option]
        return environment

    def revision(self) -> int:
        """The current revision of the store."""
        # --write-out=fields prints: "Revision" : 7
        for line in self.etcdctl("get", "any", "--write-out=fields").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == '"Revision"':
                return int(value)
        raise AssertionError("etcdctl printed no revision")

    def compact(self) -> int:
        """Compact away all history before the current revision, which is returned."""
        revision = self.revision()
        self.etcdctl("compaction", str(revision), "--physical=true")
        return revision


class ExternalEtcd(External, Etcd):
    """An etcd that somebody else runs; tests that stop or pause a server start their own."""


class EtcdServer(Etcd, ServerProcess):
    """One etcd node.

    Args:
        directory: for its data, log and configuration.
        tls: certificates to serve TLS with.
        mutual: with ``tls``, also require a client certificate.
        auth: require a password. Besides ``root`` there is then the user ``coord``, who may read
            and write below `AUTH_PREFIX` only, and ``url`` carries that user.
        token_ttl: with ``auth``, after how many idle seconds a token ends; a restart ends all.
    """

    AUTH_PREFIX: Final = "/coordlock/"
    USER = "coord"
    PASSWORD: Final = "p@ss/wörd:1"

    name = "etcd"
    cluster: Mapping[str, str] = {}
    #: The host and port that it tells clients to use; None for its own.
    client_address: str | None = None
    #: Milliseconds. The shortest lease is one and a half elections, rounded up to seconds: 1 s.
    heartbeat, election = 50, 500

    def __init__(
        self,
        directory: Path,
        *,
        tls: Certificates | None = None,
        mutual: bool = False,
        auth: bool = False,
        token_ttl: int = 2,
    ) -> None:
        self._tls = tls
        self._mutual = mutual
        self._auth = auth
        self._auth_is_enabled = self._has_users = False
        self._token_ttl = token_ttl
        super().__init__(directory)

    def choose_ports(self) -> None:
        self._client_port, self.peer_port, self._health_port = free_port(), free_port(), free_port()

    @property
    def endpoint(self) -> Endpoint:
        options: dict[str, str] = {}
        if self._tls:
            options |= {"tls": "true", "ca": str(self._tls.ca)}
            if self._mutual:
                options |= {"cert": str(self._tls.client), "key": str(self._tls.client_key)}
        hosts = (f"127.0.0.1:{self._client_port}",)
        if self._auth:
            return Endpoint("etcd", hosts, self.USER, self.PASSWORD, options)
        return Endpoint("etcd", hosts, options=options)

    @property
    def administrator(self) -> Endpoint:
        # etcd refuses credentials until authentication is enabled.
        root = ("root", ROOT_PASSWORD) if self._auth_is_enabled else (None, None)
        return replace(self.endpoint, username=root[0], password=root[1])

    @property
    def peer_url(self) -> str:
        """Where the other members of a cluster reach this one."""
        return f"http://127.0.0.1:{self.peer_port}"

    def command(self) -> list[str]:
        scheme = "https" if self._tls else "http"
        client_url = f"{scheme}://127.0.0.1:{self._client_port}"
        told_url = f"{scheme}://{self.client_address}" if self.client_address else client_url
        members = self.cluster or {self.name: self.peer_url}
        options = {
            "name": self.name,
            "data-dir": str(self.data),
            "listen-client-urls": client_url,
            "advertise-client-urls": told_url,
            "listen-peer-urls": f"http://127.0.0.1:{self.peer_port}",
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{name}={url}" for name, url in members.items()),
            "initial-cluster-state": "new",
            # Health on a plain port of its own, so that the probe needs no credentials.
            "listen-metrics-urls": f"http://127.0.0.1:{self._health_port}",
            "heartbeat-interval": str(self.heartbeat),
            "election-timeout": str(self.election),
            "logger": "zap",
            "log-outputs": "stderr",
            "log-level": "info",
        }
        if self._tls:
            options |= {"cert-file": str(self._tls.server), "key-file": str(self._tls.server_key)}
            if self._mutual:
                options |= {"client-cert-auth": "true", "trusted-ca-file": str(self._tls.ca)}
        if self._auth:
            # Cheap password hashes: tests log in often.
            options |= {"auth-token-ttl": str(self._token_ttl), "bcrypt-cost": "4"}
        return ["etcd", *(f"--{name}={value}" for name, value in options.items())]

    def answers(self) -> bool:
        try:
            with closing(HTTPConnection("127.0.0.1", self._health_port, timeout=1)) as connection:
                connection.request("GET", "/health")
                return b'"true"' in connection.getresponse().read()
        except (OSError, HTTPException):
            return False

    def start(self) -> Self:
        super().start()
        if self._auth and not self._auth_is_enabled:
            self.turn_auth(on=True)
        return self

    def turn_auth(self, *, on: bool) -> None:
        """Turn authentication on, with the users of ``auth``, or off, while clients are at work."""
        if on and not self._has_users:
            self._add_users()
        self.etcdctl("auth", "enable" if on else "disable")
        self._auth_is_enabled = on

    def _add_users(self) -> None:
        for line in (
            ("user", "add", f"root:{ROOT_PASSWORD}"),
            ("user", "grant-role", "root", "root"),
            ("user", "add", f"{self.USER}:{self.PASSWORD}"),
            ("role", "add", "locker"),
            ("role", "grant-permission", "locker", "readwrite", "--prefix=true", self.AUTH_PREFIX),
            ("user", "grant-role", self.USER, "locker"),
        ):
            self.etcdctl(*line)
        self._has_users = True

    def leads(self) -> bool:
        """Whether this member answers, and believes to lead its cluster."""
        if not self.answers():
            return False
        try:
            [reply] = json.loads(self.etcdctl("endpoint", "status", "--write-out=json"))
        except subprocess.CalledProcessError:  # it ended just now
            return False
        status = reply["Status"]
        return bool(status["leader"] == status["header"]["member_id"])


class EtcdCluster(Cluster[EtcdServer], Etcd):
    """An etcd cluster on this machine."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.members = [EtcdServer(directory / f"member{number}") for number in range(size)]

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("etcd", tuple(member.endpoint.hosts[0] for member in self.members))

    def configure(self) -> None:
        peers = {f"etcd{number}": member.peer_url for number, member in enumerate(self.members)}
        for name, member in zip(peers, self.members, strict=True):
            member.name, member.cluster = name, peers
            # Elections among three processes on a busy machine need room; leases of 2 s and more.
            member.heartbeat, member.election = 100, 1000

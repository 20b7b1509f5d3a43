"""ZooKeeper servers: one node, plain or secured, and ensembles."""

from __future__ import annotations

import os
import re
import shutil
import socket
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from testbed.servers.certificates import Certificates
from testbed.servers.cluster import Cluster
from testbed.servers.endpoint import Endpoint, External, Service
from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess

__all__ = [
    "ExternalZooKeeper",
    "ZooKeeper",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "children",
    "classpath",
    "zookeeper_is_installed",
]

#: Where Debian's jars are; elsewhere for a release that `scripts/servers` has unpacked.
_JAVA: Final = Path(os.environ.get("COORDLOCK_TEST_JARS", "/usr/share/java"))


def classpath() -> str:
    """What ``java -cp`` takes to find ZooKeeper and its tools."""
    jar = _JAVA / "zookeeper.jar"
    manifest = zipfile.ZipFile(jar).read("META-INF/MANIFEST.MF").decode()
    # A long line of a manifest goes on after a line break and a space.
    [needed] = re.findall("^Class-Path: (.*)$", re.sub("\r?\n ", "", manifest), re.MULTILINE)
    # It names most of what the jar needs, but not all of Netty and no logger; and with the paths of
    # an installation, so that the jar comes last, behind those of its own release.
    names = [Path(one).name for one in needed.split()]
    names += ["netty-codec.jar", "netty-resolver.jar", "slf4j-simple.jar"]
    return ":".join(map(str, [*(_JAVA / name for name in names), jar]))


def zookeeper_is_installed() -> bool:
    """Whether Debian's ZooKeeper and a Java runtime are there."""
    return shutil.which("java") is not None and (_JAVA / "zookeeper.jar").exists()


def children(client: Any, path: str) -> list[str]:
    """The children of ``path``; none where it is not, as a queue that the server has reaped."""
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


class ZooKeeper(Service):
    """What tests ask of a ZooKeeper, whoever started it: a kazoo client."""

    def kazoo_options(self) -> dict[str, Any]:
        """The arguments with which ``KazooClient`` reaches this server."""
        endpoint = self.endpoint
        arguments: dict[str, Any] = {"hosts": ",".join(endpoint.hosts)}
        options = endpoint.options
        if options.get("tls") == "true":
            arguments |= {"use_ssl": True, "ca": options.get("ca")}
            arguments |= {"certfile": options.get("cert"), "keyfile": options.get("key")}
        if options.get("auth") == "sasl":
            arguments["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": endpoint.username,
                "password": endpoint.password,
            }
        elif options.get("auth") == "digest":
            arguments["auth_data"] = [("digest", f"{endpoint.username}:{endpoint.password}")]
        return arguments

    @contextmanager
    def kazoo(self, **options: Any) -> Iterator[Any]:
        """A started ``KazooClient`` of its own session, closed at the end."""
        client = KazooClient(**(self.kazoo_options() | {"timeout": 40.0} | options))
        try:
            client.start(timeout=30)
            yield client
        finally:
            client.stop()
            client.close()


class ExternalZooKeeper(External, ZooKeeper):
    """A ZooKeeper that somebody else runs; tests that stop or pause a server start their own."""


class ZooKeeperServer(ZooKeeper, ServerProcess):
    """One ZooKeeper node with container nodes, and sessions from 0.4 s to 60 s.

    Digest authentication and ACLs need no preparation of the server.

    Args:
        directory: for its data, log and configuration.
        tls: certificates to serve TLS with; there is no plain port then.
        mutual: with ``tls``, also require a client certificate.
        sasl: refuse whoever does not log in as `USER` with SASL DIGEST-MD5; ``url`` does.
        tick: milliseconds; sessions expire in steps of it.
        container_check: milliseconds between two reapings of empty containers.
    """

    USER: Final = "coord"
    PASSWORD: Final = "sasl-password"

    #: This member's number and the addresses of all members, in an ensemble.
    number = 0
    ensemble: Mapping[int, str] = {}

    def __init__(
        self,
        directory: Path,
        *,
        tls: Certificates | None = None,
        mutual: bool = False,
        sasl: bool = False,
        tick: int = 200,
        container_check: int = 1000,
    ) -> None:
        self._tls = tls
        self._mutual = mutual
        self._sasl = sasl
        self._tick = tick
        self._container_check = container_check
        super().__init__(directory)

    def choose_ports(self) -> None:
        self._client_port, self._peer_port, self._election_port = (
            free_port(),
            free_port(),
            free_port(),
        )

    @property
    def endpoint(self) -> Endpoint:
        options: dict[str, str] = {}
        if self._tls:
            options |= {"tls": "true", "ca": str(self._tls.ca)}
            if self._mutual:
                options |= {"cert": str(self._tls.client), "key": str(self._tls.client_key)}
        hosts = (f"127.0.0.1:{self._client_port}",)
        if self._sasl:
            options |= {"auth": "sasl"}
            return Endpoint("zookeeper", hosts, self.USER, self.PASSWORD, options)
        return Endpoint("zookeeper", hosts, options=options)

    @property
    def address(self) -> str:
        """Where the other members of an ensemble reach this one."""
        return f"127.0.0.1:{self._peer_port}:{self._election_port}"

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        (self.data / "myid").write_text(f"{self.number}\n")
        configuration = self.directory / "zoo.cfg"
        lines = (f"{name}={value}\n" for name, value in self._configuration().items())
        configuration.write_text("".join(lines))
        return [
            "java",
            # A small machine, started quickly.
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dznode.container.checkIntervalMs={self._container_check}",
            *self._login_options(),
            "-cp",
            classpath(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(configuration),
        ]

    def _configuration(self) -> dict[str, object]:
        configuration: dict[str, object] = {
            "dataDir": self.data,
            "tickTime": self._tick,
            "initLimit": 50,
            "syncLimit": 25,
            "minSessionTimeout": 2 * self._tick,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "extendedTypesEnabled": "true",
            # A killed process loses nothing that it wrote; only a crash of the machine would.
            "forceSync": "no",
            "preAllocSize": 1024,
        }
        if self._tls:
            configuration |= {
                "secureClientPort": self._client_port,
                "secureClientPortAddress": "127.0.0.1",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self._tls.keystore,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self._tls.ca,
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need" if self._mutual else "none",
            }
        else:
            configuration |= {
                "clientPort": self._client_port,
                "clientPortAddress": "127.0.0.1",
            }
        if self._sasl:
            configuration |= {
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "enforce.auth.enabled": "true",
                "enforce.auth.schemes": "sasl",
            }
        return configuration | {f"server.{n}": address for n, address in self.ensemble.items()}

    def _login_options(self) -> list[str]:
        if not self._sasl:
            return []
        jaas = self.directory / "jaas.conf"
        jaas.write_text(
            "Server {\n"
            "  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  user_{self.USER}="{self.PASSWORD}";\n'
            "};\n"
        )
        # From 3.9.6 on DIGEST-MD5 needs FIPS mode off, which is on by itself.
        return [f"-Djava.security.auth.login.config={jaas}", "-Dzookeeper.fips-mode=false"]

    def answers(self) -> bool:
        # It is this server that answers, and not another one that had taken the port. A server
        # that does not serve yet says so instead.
        return f"dataDir={self.data}/" in self.four_letters("conf")

    def leads(self) -> bool:
        """Whether this member leads its ensemble."""
        return "Mode: leader" in self.four_letters("srvr")

    def four_letters(self, word: str) -> str:
        """The answer to a four-letter word such as ``srvr``, ``mntr``; empty when there is none."""
        try:
            with self._connect() as connection, connection.makefile("rb") as reply:
                connection.sendall(word.encode())
                return reply.read().decode()
        except OSError:
            return ""

    def _connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self._client_port), timeout=10)
        if not self._tls:
            return plain
        return self._tls.client_context().wrap_socket(plain, server_hostname="127.0.0.1")


class ZooKeeperEnsemble(Cluster[ZooKeeperServer], ZooKeeper):
    """A ZooKeeper ensemble on this machine."""

    def __init__(self, directory: Path, size: int = 3, *, tick: int = 200) -> None:
        self.members = [
            ZooKeeperServer(directory / f"member{n}", tick=tick) for n in range(1, size + 1)
        ]

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("zookeeper", tuple(m.endpoint.hosts[0] for m in self.members))

    def configure(self) -> None:
        addresses = {number: member.address for number, member in enumerate(self.members, 1)}
        for number, member in enumerate(self.members, 1):
            member.number, member.ensemble = number, addresses

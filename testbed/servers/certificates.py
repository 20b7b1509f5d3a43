"""A certificate authority of the test run, and what it signed."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificates"]

_Key = ec.EllipticCurvePrivateKey


class Certificates:
    """PEM files below ``directory``: the authority, a server for localhost, and a client.

    ``keystore`` holds the server's certificate and key in one file, as ZooKeeper wants them. Two
    instances do not trust each other.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = directory / "ca.pem"
        self.server, self.server_key = directory / "server.pem", directory / "server-key.pem"
        self.client, self.client_key = directory / "client.pem", directory / "client-key.pem"
        self.keystore = directory / "server-keystore.pem"

        authority_key = ec.generate_private_key(ec.SECP256R1())
        name = _name("coordlock test authority")
        authority = (
            _builder(name, name, authority_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(authority_key, hashes.SHA256())
        )
        self.ca.write_bytes(authority.public_bytes(Encoding.PEM))
        for who, certificate, key_file in (
            ("localhost", self.server, self.server_key),
            ("coord", self.client, self.client_key),
        ):
            key = ec.generate_private_key(ec.SECP256R1())
            signed = (
                _builder(_name(who), name, key)
                .add_extension(_ADDRESSES, critical=False)
                .add_extension(_USES, critical=False)
                .sign(authority_key, hashes.SHA256())
            )
            certificate.write_bytes(signed.public_bytes(Encoding.PEM))
            key_file.write_bytes(
                key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            )
        self.keystore.write_bytes(self.server_key.read_bytes() + self.server.read_bytes())

    def client_context(self, *, certificate: bool = True) -> ssl.SSLContext:
        """For a client that trusts the authority and, with ``certificate``, shows its own."""
        context = ssl.create_default_context(cafile=self.ca)
        if certificate:
            context.load_cert_chain(self.client, self.client_key)
        return context


_ADDRESSES = x509.SubjectAlternativeName(
    [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
)
# Both uses for both: etcd's own gateway presents the server's certificate as a client.
_USES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )

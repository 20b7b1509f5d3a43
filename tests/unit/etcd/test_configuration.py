from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.backend_contract import backend_for
from testbed.servers.certificates import Certificates


def refusal(**options: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        EtcdBackend.configure(configure("etcd://h", options), timers=SystemTimers())
    return str(refused.value)


def test_nothing_is_connected_before_open() -> None:
    backend_for(EtcdBackend, "etcd://nowhere.invalid:2379").close().result(30)


def test_a_password_needs_a_user() -> None:
    assert refusal(password="x") == "etcd needs a username beside the password"


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_certificates_need_tls(name: str) -> None:
    assert refusal(**{name: "x.pem"}) == f"option {name!r} needs tls=true"


def test_a_certificate_needs_its_key(certificates: Certificates) -> None:
    assert "are no certificate and its key" in refusal(tls=True, cert=str(certificates.client))
    assert "needs option 'cert'" in refusal(tls=True, key=str(certificates.client_key))


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_file_that_is_not_there_is_named_with_its_option(
    name: str, certificates: Certificates
) -> None:
    files = {
        "ca": str(certificates.ca),
        "cert": str(certificates.client),
        "key": str(certificates.client_key),
    }
    files[name] = "/no/such/file.pem"
    message = refusal(tls=True, **files)
    assert message == f"option {name!r}: cannot read /no/such/file.pem: No such file or directory"


def test_an_authority_must_be_pem(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    for content in (b"", b"not PEM", b"\xff\x00"):
        file.write_bytes(content)
        assert f"option 'ca': {file} holds no certificate" in refusal(tls=True, ca=str(file))


def test_a_key_must_be_the_certificates(certificates: Certificates) -> None:
    message = refusal(tls=True, cert=str(certificates.client), key=str(certificates.server_key))
    assert str(certificates.server_key) in message


def test_a_client_must_have_a_channel() -> None:
    with pytest.raises(ConfigurationError, match="Etcd3Client"):
        EtcdBackend.configure(configure("etcd://h"), client=object(), timers=SystemTimers())


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf"])
def test_without_its_packages_the_backend_names_the_extra(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import coordlock.errors\n"
        "try: import coordlock_etcd\n"
        "except coordlock.errors.ConfigurationError as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.startswith("the etcd backend needs grpcio and protobuf")
    assert "pip install 'coordlock[etcd]'" in said

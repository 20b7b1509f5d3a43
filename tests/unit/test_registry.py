from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from coordlock_memory import MemoryBackend

import coordlock
from coordlock import ConfigurationError
from coordlock.backend.registry import _OWN, backend_for_client, backend_for_scheme, schemes

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution with entry points and modules, for the length of a test."""

    def install(entry_points: str, **modules: str) -> None:
        information = tmp_path / "third_party-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Name: third-party\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(entry_points)
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(source)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.mark.parametrize("scheme", ["etcd", "local", "memory", "redis", "zookeeper"])
@pytest.mark.parametrize("patched", ["thread", "socket"])
def test_every_service_is_refused_under_eventlet(
    scheme: str, patched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patcher = SimpleNamespace(is_monkey_patched=patched.__eq__)
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patcher)
    with pytest.raises(ConfigurationError, match=r"under eventlet.* use gevent"):
        coordlock.Client(f"{scheme}://")
    patcher.is_monkey_patched = lambda name: False  # it is imported only
    backend_for_scheme(scheme)


def test_the_backends_are_registered() -> None:
    assert {"etcd", "local", "memory", "redis", "valkey", "zookeeper"} <= set(schemes())
    assert list(schemes()) == sorted(schemes())


def test_the_backends_that_are_known_without_entry_points_are_those_of_coordlock() -> None:
    groups = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["entry-points"]
    assert groups["coordlock.backends"] == _OWN


def test_a_backend_is_found_by_its_scheme() -> None:
    assert backend_for_scheme("memory") is MemoryBackend


def test_a_third_party_adds_a_backend_and_the_clients_it_can_use(install: Install) -> None:
    install(
        "[coordlock.backends]\nmine = third_mine:Mine\n"
        "[coordlock.clients]\nthird_mine = third_mine:Mine\n",
        third_mine=(
            "from coordlock_memory import MemoryBackend\n"
            "class Mine(MemoryBackend):\n    scheme = 'mine'\n"
            "class Client: pass\n"
        ),
    )
    found = backend_for_scheme("mine")
    assert found.scheme == "mine"
    assert "mine" in schemes()
    client = sys.modules["third_mine"].Client()
    assert backend_for_client(client) is found

    class Derived(sys.modules["third_mine"].Client):  # type: ignore[misc]
        pass

    assert backend_for_client(Derived()) is found


def test_a_missing_dependency_names_the_line_that_installs_it(install: Install) -> None:
    install(
        "[coordlock.backends]\nbroken = third_broken:Broken\n",
        third_broken="import surely_not_installed\n",
    )
    with pytest.raises(ConfigurationError) as caught:
        backend_for_scheme("broken")
    assert "surely_not_installed" in str(caught.value)
    assert "pip install 'coordlock[broken]'" in str(caught.value)


def test_a_backend_may_name_the_extra_itself(install: Install) -> None:
    install(
        "[coordlock.backends]\nbroken = third_named:Broken\n",
        third_named="from coordlock.errors import ConfigurationError\n"
        "raise ConfigurationError.missing('no gssapi', 'sasl')\n",
    )
    with pytest.raises(ConfigurationError, match=r"no gssapi.*coordlock\[sasl\]"):
        backend_for_scheme("broken")


@pytest.mark.parametrize("value", ["third_none:number", "third_none:Klass", "third_none"])
def test_what_is_registered_and_is_no_backend_is_refused(install: Install, value: str) -> None:
    install(f"[coordlock.backends]\nnone = {value}\n", third_none="number = 5\nclass Klass: pass\n")
    with pytest.raises(ConfigurationError, match="third_none"):
        backend_for_scheme("none")


def test_an_entry_point_that_names_nothing_is_refused(install: Install) -> None:
    install("[coordlock.backends]\nnone = third_empty:Missing\n", third_empty="")
    with pytest.raises(ConfigurationError, match="third_empty"):
        backend_for_scheme("none")


def test_clients_of_other_libraries_are_refused_with_those_that_can_be_used() -> None:
    with pytest.raises(ConfigurationError, match=r"pathlib\.\w+.*etcd3, kazoo, redis, valkey"):
        backend_for_client(Path())


def test_an_unknown_scheme_is_refused() -> None:
    for scheme in ("", "Memory", "memory ", "../memory", "nonsense"):
        with pytest.raises(ConfigurationError, match="memory://"):
            backend_for_scheme(scheme)

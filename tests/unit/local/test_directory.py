"""Where the state directory is, and which ones are refused."""

from __future__ import annotations

import io
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_local import LocalBackend
from coordlock_local.directory import Directory, default_root

import coordlock
from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime import shared_file
from coordlock.runtime.clock import SystemTimers


def configured(target: Any) -> LocalBackend:
    return LocalBackend.configure(configure(target), timers=SystemTimers())


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the user's account have that home; ``XDG_STATE_HOME`` is not set."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def has(home: str) -> None:
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=home))

    return has


def test_the_default_directory_follows_the_xdg_specification(
    monkeypatch: pytest.MonkeyPatch, account: Callable[[str], None], tmp_path: Path
) -> None:
    account(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert default_root() == "/elsewhere/coordlock"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert default_root() == f"{tmp_path}/.local/state/coordlock"
    assert configured("local://").root == default_root()
    assert configured("local:///var/x").root == "/var/x"


@pytest.mark.parametrize("home", [None, "", "relative", "/home/somebody/else"])
def test_the_default_directory_is_in_the_accounts_home_whatever_the_variable_says(
    monkeypatch: pytest.MonkeyPatch,
    account: Callable[[str], None],
    tmp_path: Path,
    home: str | None,
) -> None:
    """So that a job of cron, one under sudo and their user at a terminal exclude each other."""
    account(str(tmp_path))
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    assert default_root() == f"{tmp_path}/.local/state/coordlock"


@pytest.mark.parametrize("home", ["nonexistent", "relative", "/", ""])
def test_an_account_without_a_home_is_told_what_to_do_and_none_is_made(
    account: Callable[[str], None], tmp_path: Path, home: str
) -> None:
    missing = tmp_path / "nonexistent"
    account(str(missing) if home == "nonexistent" else home)
    with pytest.raises(ConfigurationError, match=r"local:///path.*XDG_STATE_HOME"):
        configured("local://")
    assert not missing.exists()


def test_a_user_without_an_account_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, account: Callable[[str], None]
) -> None:
    """As containers run with arbitrary user ids."""
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(os, "geteuid", lambda: 2_000_123_456)
    with pytest.raises(ConfigurationError, match=r"user 2000123456 has no account.*local:///path"):
        default_root()


@pytest.mark.parametrize("url", ["local://host/path", "local://me@/path", "local://me:secret@h"])
def test_a_host_or_a_user_in_the_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("target", ["local:///", {"backend": "local", "root": "/"}], ids=str)
def test_the_machines_top_directory_is_refused(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="local:///path"):
        configured(target)


def test_a_client_of_another_library_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no client"):
        LocalBackend.configure(configure("local:///x"), object(), timers=SystemTimers())


@pytest.mark.parametrize("system", ["win32", "cygwin", "sunos5", "aix", "wasi"])
def test_systems_without_flock_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(ConfigurationError, match=rf"\({system}\).* use etcd:// or zookeeper://"):
        coordlock.connect("local:///x")


@pytest.mark.parametrize("system", ["linux", "darwin", "freebsd14", "openbsd7", "netbsd10"])
def test_systems_with_flock_are_not(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    settings = configure("local:///x")
    monkeypatch.setattr(sys, "platform", system)
    assert LocalBackend.configure(settings, timers=SystemTimers()).root == "/x"


@pytest.mark.parametrize(
    "kind",
    [
        *("9p", "virtiofs", "vboxsf", "ocfs2", "gfs2", "nfs4", "cifs", "ceph", "lustre"),
        *("fuse.ceph-fuse", "fuse.sshfs", "fuse.mergerfs", "fuse", "of tomorrow"),
    ],
)
def test_a_file_system_that_is_not_known_to_be_local_is_refused_unless_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(shared_file, "_file_system", lambda path: kind)
    url = f"local://{tmp_path}/state"
    with pytest.raises(ConfigurationError) as caught:
        coordlock.connect(url)
    assert f"({kind})" in str(caught.value)
    trusting = f"{url}?trust_filesystem=true"
    assert trusting in str(caught.value)
    assert os.listdir(tmp_path / "state") == []
    with coordlock.connect(trusting) as client, client.lock("q"):
        [warning] = client.admin.describe().warnings
        assert kind in warning


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk"])
def test_a_file_system_that_is_known_to_be_local_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(shared_file, "_file_system", lambda path: kind)
    with coordlock.connect(f"local://{tmp_path}/state") as client:
        assert client.admin.describe().warnings == ()


def test_systems_that_tell_nothing_of_their_file_systems_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "_file_system", lambda path: "")
    with pytest.raises(ConfigurationError, match="mountinfo says nothing"):
        Directory.prepare(str(tmp_path / "state"))
    monkeypatch.setattr(sys, "platform", "freebsd14")
    Directory.prepare(str(tmp_path / "state"))


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o177, 0o777], ids=oct)
def test_whatever_the_umask_only_the_user_has_access_to_what_is_made(
    tmp_path: Path, umask: int
) -> None:
    tmp_path.chmod(0o755)
    root = tmp_path / ".local" / "state" / "coordlock"
    before = os.umask(umask)
    try:
        with coordlock.connect(f"local://{root}") as client, client.lock("q"):
            client.value("/app/a").set(b"1")
            found = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    assert root / "data" in found
    for path, mode in found.items():
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755  # it was there before


def test_the_file_system_is_that_of_the_nearest_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = (
        b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"22 21 0:5 / /home rw,relatime shared:1 - nfs4 server:/home rw\n"
        b"23 22 8:2 / /home/a\\040b rw - xfs /dev/sdb1 rw\n"
        b"24 21 8:3 / /homework rw - btrfs /dev/sdc1 rw\n"
    )
    monkeypatch.setattr(shared_file, "open", lambda *_: io.BytesIO(table), raising=False)
    found = shared_file._file_system
    assert found("/var/x") == "ext4"
    assert found("/home/me") == "nfs4"
    assert found("/home/a b/c") == "xfs"
    assert found("/homework/x") == "btrfs"


def test_the_file_system_of_this_machine_is_found(tmp_path: Path) -> None:
    assert shared_file._file_system(str(tmp_path)) not in ("", "nfs4")


def test_the_directory_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match="belongs to user"):
        Directory.prepare(str(tmp_path))


def test_names_that_differ_by_case_only_are_apart_where_the_file_system_folds_them() -> None:
    folding = Directory("/root", folds=True)
    paths = [folding.queue(name).lower() for name in ("a", "A", "aa", "aA", "Aa", "AA", "a/b")]
    assert len(set(paths)) == len(paths)
    assert Directory("/root").queue("A") == "/root/queues/A"


def test_importing_the_backend_imports_neither_ctypes_nor_hashlib_nor_another_backend() -> None:
    program = (
        "import sys, coordlock\n"
        "before = set(sys.modules)\n"
        "import coordlock_local\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    new = {name for name in run.stdout.split() if not name.startswith("coordlock_local")}
    assert not new & {"ctypes", "hashlib", "kazoo", "grpc"}, new

"""Where the state directory is, and which ones are refused."""

from __future__ import annotations

import io
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from coordlock_local import LocalBackend, directory
from coordlock_local.directory import Directory, default_root

from coordlock.config import configure
from coordlock.errors import ConfigurationError


def test_the_default_directory_follows_the_xdg_specification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert default_root() == "/elsewhere/coordlock"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert default_root() == "/home/somebody/.local/state/coordlock"
    assert LocalBackend.configure(configure("local://")).root == default_root()
    assert LocalBackend.configure(configure("local:///var/x")).root == "/var/x"


def test_without_the_variable_home_it_is_in_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a job of cron and its user at a terminal exclude each other."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    account = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.delenv("HOME", raising=False)
    assert default_root() == f"{account}/.local/state/coordlock"
    monkeypatch.setenv("HOME", "")
    assert default_root() == f"{account}/.local/state/coordlock"


def test_who_has_no_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(ConfigurationError, match="XDG_STATE_HOME"):
        default_root()


@pytest.mark.parametrize("url", ["local://host/path", "local://me@/path", "local://me:secret@h"])
def test_a_host_or_a_user_in_the_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LocalBackend.configure(configure(url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("target", ["local:///", {"backend": "local", "root": "/"}], ids=str)
def test_the_machines_top_directory_is_refused(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="local:///path"):
        LocalBackend.configure(configure(target))


def test_a_client_of_another_library_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no client"):
        LocalBackend.configure(configure("local:///x"), object())


def test_systems_without_posix_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = configure("local:///x")
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(ConfigurationError, match="POSIX"):
            LocalBackend.configure(settings)


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_file_system", lambda path: "nfs4")
    with pytest.raises(ConfigurationError, match=r"network file system \(nfs4\)"):
        Directory.prepare(str(tmp_path / "state"))


def test_the_file_system_is_that_of_the_nearest_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = (
        b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"22 21 0:5 / /home rw,relatime shared:1 - nfs4 server:/home rw\n"
        b"23 22 8:2 / /home/a\\040b rw - xfs /dev/sdb1 rw\n"
        b"24 21 8:3 / /homework rw - btrfs /dev/sdc1 rw\n"
    )
    monkeypatch.setattr(directory, "open", lambda *_: io.BytesIO(table), raising=False)
    found = directory._file_system
    assert found("/var/x") == "ext4"
    assert found("/home/me") == "nfs4"
    assert found("/home/a b/c") == "xfs"
    assert found("/homework/x") == "btrfs"


def test_the_file_system_of_this_machine_is_found(tmp_path: Path) -> None:
    assert directory._file_system(str(tmp_path)) not in ("", "nfs4")


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

"""Where a configuration is looked for."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coordlock import ConfigurationError
from coordlock.settings import sources


@dataclass
class Machine:
    """The places where a process may find a configuration, all of them empty at first."""

    top: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work, self.home, self.etc = (self.top / name for name in ("work", "home", "etc"))
        for place in (self.work, self.home, self.etc):
            place.mkdir()
        self.environ["HOME"] = str(self.home)

    def find(self) -> tuple[Any, str]:
        """What a process finds, and where."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.work)
            return self.find_here(patch)

    def find_here(self, patch: pytest.MonkeyPatch) -> tuple[Any, str]:
        patch.setattr(os, "environ", self.environ)
        patch.setattr(sources, "_SYSTEM_FILE", str(self.etc / "coordlock.toml"))
        return sources.find()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def write(file: Path, content: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_the_first_configuration_found_wins(machine: Machine) -> None:
    """From the least to the first: each next one put in place takes over."""

    def found() -> tuple[str, str]:
        target, origin = machine.find()
        return target if isinstance(target, str) else target["url"], origin

    assert found() == ("local://", "the default")
    file = write(machine.etc / "coordlock.toml", 'url = "memory://system"')
    assert found() == ("memory://system", str(file))
    file = write(machine.home / ".config/coordlock.toml", 'url = "memory://user"')
    assert found() == ("memory://user", str(file))
    write(machine.work / "pyproject.toml", '[project]\nname = "x"')
    assert found() == ("memory://user", str(file))
    write(machine.work / "pyproject.toml", '[tool.coordlock]\nurl = "memory://project"')
    assert found() == ("memory://project", "[tool.coordlock] in pyproject.toml")
    write(machine.work / "coordlock.toml", 'url = "memory://file"')
    assert found() == ("memory://file", "coordlock.toml")
    file = write(machine.top / "named.toml", 'url = "memory://named"')
    machine.environ["COORDLOCK_CONFIG"] = str(file)
    assert found() == ("memory://named", str(file))
    machine.environ["COORDLOCK_URL"] = "memory://variable"
    assert found() == ("memory://variable", "COORDLOCK_URL")


@pytest.mark.parametrize("name", ["COORDLOCK_URL", "COORDLOCK_CONFIG"])
def test_an_empty_variable_is_an_error_that_says_so(machine: Machine, name: str) -> None:
    write(machine.work / "coordlock.toml", 'url = "memory://file"')
    machine.environ[name] = ""
    with pytest.raises(ConfigurationError, match=f"{name} is set, but empty"):
        machine.find()


def test_the_users_directory_is_where_the_xdg_variable_says(machine: Machine) -> None:
    write(machine.home / ".config/coordlock.toml", 'url = "memory://home"')
    file = write(machine.top / "config/coordlock.toml", 'url = "memory://xdg"')
    machine.environ["XDG_CONFIG_HOME"] = str(file.parent)
    assert machine.find() == ({"url": "memory://xdg"}, str(file))
    machine.environ["XDG_CONFIG_HOME"] = "config"  # the specification: ignore relative ones
    assert machine.find()[0] == {"url": "memory://home"}


def test_without_the_variable_home_is_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    account = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert [*sources._user_files()] == [f"{account}/.config/coordlock.toml"]
    monkeypatch.delenv("HOME")
    assert [*sources._user_files()] == [f"{account}/.config/coordlock.toml"]


@pytest.mark.parametrize("place", ["work", "home/.config", "etc"])
@pytest.mark.parametrize("obstacle", ["directory", "dangling link", "not TOML"])
def test_what_is_there_and_cannot_be_read_is_an_error_that_names_it(
    machine: Machine, place: str, obstacle: str
) -> None:
    file = machine.top / place / "coordlock.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    if obstacle == "directory":
        file.mkdir()
    elif obstacle == "dangling link":
        file.symlink_to(machine.top / "missing")
    else:
        file.write_bytes(b"\xff")
    shown = file.name if place == "work" else str(file)
    with pytest.raises(ConfigurationError, match=re.escape(shown)):
        machine.find()


@contextmanager
def ordinary_user() -> Iterator[None]:
    """The block does not run as root, who may read everything."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_file_without_permission_is_an_error_and_a_closed_directory_is_empty() -> None:
    with tempfile.TemporaryDirectory() as top:  # pytest's own directories are closed to others
        Path(top).chmod(0o755)
        machine = Machine(Path(top))
        file = write(machine.home / ".config" / "coordlock.toml", 'url = "memory://user"')
        file.chmod(0)
        with ordinary_user(), pytest.raises(ConfigurationError, match="Permission denied") as error:
            machine.find()
        assert str(file) in str(error.value)
        file.parent.chmod(0)
        with ordinary_user():
            assert machine.find() == ("local://", "the default")
        write(machine.etc / "coordlock.toml", 'url = "memory://system"')
        with ordinary_user():
            assert machine.find()[0] == {"url": "memory://system"}
        file.parent.chmod(0o700)


def test_a_named_file_that_is_missing_is_an_error(machine: Machine) -> None:
    for name in (str(machine.top / "missing.toml"), str(machine.top)):
        machine.environ["COORDLOCK_CONFIG"] = name
        with pytest.raises(ConfigurationError, match=re.escape(name)):
            machine.find()


def test_nothing_is_found_where_nothing_can_be_looked_at(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A working directory that is gone, a home below what is no directory."""
    write(machine.top / "file", "")
    machine.environ["HOME"] = str(machine.top / "file")
    monkeypatch.chdir(machine.work)
    machine.work.rmdir()
    assert machine.find_here(monkeypatch) == ("local://", "the default")


def test_a_file_may_begin_with_a_byte_order_mark(machine: Machine) -> None:
    write(machine.work / "coordlock.toml", '\ufeffurl = "memory://marked"')
    assert machine.find()[0] == {"url": "memory://marked"}

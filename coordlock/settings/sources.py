"""Where `connect` looks for the configuration when it is given none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.settings import trimmed

__all__ = ["DEFAULT_ORIGIN", "find", "read_secret", "variable"]

#: What holds when nothing is configured, and the name of its origin.
_DEFAULT_URL: Final = "local://"
DEFAULT_ORIGIN: Final = "the default"

_LONGEST_SECRET: Final = 65_536

#: For all users of the machine.
_SYSTEM_FILE: Final = "/etc/coordlock.toml"


def find() -> tuple[str | Mapping[str, Any], str]:
    """The configuration that holds when `connect` is given none, and its origin.

    First found wins: ``COORDLOCK_URL``; the file that ``COORDLOCK_CONFIG`` names, else
    ``coordlock.toml`` in the working directory; ``[tool.coordlock]`` in ``pyproject.toml`` there;
    ``coordlock.toml`` in the user's configuration directory, then in ``/etc``; the local backend.

    Raises `ConfigurationError` for a variable that is empty and for a file that is there and
    cannot be read. A directory that the process may not search counts as empty: services are often
    kept out of the home directories.
    """
    if url := variable("COORDLOCK_URL"):
        return url, "COORDLOCK_URL"
    if named := variable("COORDLOCK_CONFIG"):
        named = trimmed(named)
        return _read(named), named
    if os.path.lexists(file := "coordlock.toml"):
        return _read(file), file
    if os.path.lexists(file := "pyproject.toml"):
        tools = _read(file).get("tool", {})
        table = tools.get("coordlock") if isinstance(tools, dict) else None
        if table is not None:
            return table, f"[tool.coordlock] in {file}"
    for file in (*_user_files(), _SYSTEM_FILE):
        if os.path.lexists(file):
            return _read(file), file
    return _DEFAULT_URL, DEFAULT_ORIGIN


def variable(name: str) -> str | None:
    """The value of an environment variable, None where it is unset.

    Raises `ConfigurationError` for an empty or blank one: its value was lost on the way.
    """
    value = os.environ.get(name)
    if value is not None and not trimmed(value):
        raise ConfigurationError(f"{name} is set, but empty: give it a value, or unset it")
    return value


def read_secret(option: str, file: object) -> str:
    """The text of the ``file`` that ``option`` names, without line ends behind it.

    Raises `ConfigurationError`, which never shows what is in the file.
    """
    if not isinstance(file, str) or not file or "\0" in file:
        raise ConfigurationError(f"{option} must be the path of a file")
    # One that is not absolute may be the secret itself, given for the file by mistake.
    shown = f"{option} {file!r}" if os.path.isabs(file) else option
    try:
        with open(file, "rb") as opened:
            found = opened.read(_LONGEST_SECRET + 1)
    except OSError as error:
        raise ConfigurationError(f"{shown}: {error.strerror}") from None
    if len(found) > _LONGEST_SECRET:
        raise ConfigurationError(f"{shown}: the file has more than {_LONGEST_SECRET} bytes")
    try:
        text = trimmed(found.decode("utf-8-sig"), is_secret=True)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigurationError(f"{shown}: the file is not text in UTF-8")
    if not text:
        raise ConfigurationError(f"{shown}: the file is empty")
    return text


def _home() -> str:
    """The user's home directory, no absolute path for a user without one.

    Where ``HOME`` is unset or empty, as some cron daemons start their jobs, it is the account's:
    `os.path.expanduser` would take an empty one for the top directory.
    """
    if given := os.environ.get("HOME"):
        return given
    try:
        import pwd  # not everywhere
    except ImportError:
        return os.path.expanduser("~")
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _user_files() -> Iterator[str]:
    """The file in the user's configuration directory; none for a user without a home."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: ignore relative ones
        base = os.path.join(_home(), ".config")
    if os.path.isabs(base):
        yield os.path.join(base, "coordlock.toml")


def _read(file: str) -> dict[str, Any]:
    import tomllib  # only where there is such a file

    try:
        with open(file, encoding="utf-8-sig") as opened:
            return tomllib.loads(opened.read())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from None

"""Configuration by variables with a prefix, and secrets from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordlock import ConfigurationError, settings_from_env
from coordlock.backend.config import configure


def set_variables(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"SHOP_{name}", value)


def test_each_option_is_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"hunter2\r\n")
    file = str(tmp_path / "secret")
    set_variables(
        monkeypatch, URL="memory://h", TTL="20s", USERNAME="u", PASSWORD_FILE=file, TIMEOUT="none"
    )
    settings = settings_from_env("SHOP_")
    assert (settings.ttl, settings.timeout, settings.password) == (20.0, None, "hunter2")
    assert settings.origin == "SHOP_URL"
    assert configure(settings) == settings


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "neither SHOP_URL nor SHOP_BACKEND is set"),
        ({"URL": ""}, "SHOP_URL is set, but empty"),
        ({"URL": " \n"}, "SHOP_URL is set, but empty"),
        (
            {"URL": "memory://h", "TLL": "1s"},
            "memory:// has no option SHOP_TLL; it has: .*ttl",
        ),
        ({"URL": "memory://h", "TTL": "2s", "ttl": "3s"}, "memory:// has no option SHOP_ttl;"),
        ({"URL": "memory://h?tll=1s"}, "memory:// has no option 'tll';"),
        ({"URL": "memory://h", "TTL": "soon"}, "option 'ttl': 'soon' is not a duration"),
        ({"URL": "memory://h", "PASSWORD": "hunter2", "PASSWORD_FILE": "x"}, "both password and"),
        ({"URL": "hunter2"}, "a URL is needed"),
    ],
)
def test_what_cannot_be_used(
    variables: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, **variables)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        settings_from_env("SHOP_")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "COORDLOCK_", "COORD", "COORDLOCK_X_", "A-B", 7, None])
def test_a_prefix_that_cannot_be_used(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        settings_from_env(prefix)


# Secrets


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hunter2\xff", "not text"),
        (b"hunter2\0", "not text"),
        (b"hunter2" * 10_000, "more than"),
    ],
)
def test_a_file_that_cannot_be_used(content: bytes | None, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        configure({"url": "memory://u@h", "password_file": str(file)})
    assert "hunter2" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="directory"):
        configure(f"memory://u@h?password_file={tmp_path}")


@pytest.mark.parametrize("file", [7, "", "\0", b"x", True])
def test_what_is_no_path(file: object) -> None:
    with pytest.raises(ConfigurationError, match="password_file"):
        configure({"url": "memory://u@h", "password_file": file})


def test_a_secret_given_for_its_file_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="No such file") as caught:
        configure({"url": "memory://u@h", "password_file": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_password_of_the_call_replaces_the_file_of_the_mapping() -> None:
    mapping = {"url": "memory://u@h", "password_file": "/nowhere"}
    assert configure(mapping, {"password": "p"}).password == "p"

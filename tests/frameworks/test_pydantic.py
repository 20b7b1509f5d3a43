"""The settings of pydantic, as mappings, configure a client."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import AnyUrl, BaseModel, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from coordlock.backend.config import configure


class LockSettings(BaseModel):
    url: AnyUrl
    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    ttl: timedelta = timedelta(seconds=20)
    timeout: float | None = None


class AppSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SHOP_", env_nested_delimiter="__")

    lock: LockSettings


def test_a_nested_model_of_pydantic_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_LOCK__URL", "memory://models/root?timeout=7")
    monkeypatch.setenv("SHOP_LOCK__USERNAME", "u")
    monkeypatch.setenv("SHOP_LOCK__PASSWORD", "hunter2")
    app = AppSettings()  # type: ignore[call-arg]  # pydantic reads it from the environment
    settings = configure(app.lock.model_dump())
    assert (settings.hosts, settings.root) == (("models",), "/root")
    assert (settings.username, settings.password) == ("u", "hunter2")
    assert (settings.ttl, settings.timeout) == (20.0, 7.0)
    assert "hunter2" not in repr(settings)

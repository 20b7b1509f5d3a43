"""The client of ``settings.COORDLOCK``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

import coordlock

__all__ = ["check_settings", "get_client", "target"]

_EXAMPLE = 'COORDLOCK = {"url": "etcd://host1:2379,host2:2379/shop"}'


@cache
def get_client() -> coordlock.Client:
    """The client of ``settings.COORDLOCK``, which is a URL or a mapping that `connect` takes.

    It connects at its first use, in each process separately, and the interpreter's exit closes it.
    Tests lock what their settings name: give them other ones, such as ``memory://tests``. After
    ``override_settings(COORDLOCK=...)`` it is another client.

    Raises `ConfigurationError` for settings that name no backend, or can't be used.
    """
    try:
        return coordlock.Client(target())
    except coordlock.ConfigurationError as error:
        error.problem = f"settings.COORDLOCK: {error.problem}"
        raise


def target() -> dict[str, Any]:
    """What ``settings.COORDLOCK`` says, as a mapping. Raises `ConfigurationError`."""
    found = getattr(settings, "COORDLOCK", None)
    if not found:
        raise coordlock.ConfigurationError(f"it is not set: write {_EXAMPLE}")
    if not isinstance(found, str | Mapping):
        raise coordlock.ConfigurationError(f"it is no URL and no dict: write {_EXAMPLE}")
    return {"url": found} if isinstance(found, str) else dict(found)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "COORDLOCK":
        get_client.cache_clear()


setting_changed.connect(_forget)


def check_settings(**_: Any) -> list[Any]:
    """Django's check of the settings: ``manage.py check``."""
    from django.core.checks import Error

    try:
        get_client()
    except coordlock.ConfigurationError as error:
        return [Error(str(error), id="coordlock.E001")]
    return []

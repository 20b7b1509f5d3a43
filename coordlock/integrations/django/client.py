"""The client of ``settings.COORDLOCK``; another one where tests run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings

import coordlock

__all__ = ["check_settings", "get_client", "target"]

_EXAMPLE = 'COORDLOCK = {"url": "etcd://host1:2379,host2:2379/shop"}'


@cache
def get_client() -> coordlock.Client:
    """The client of ``settings.COORDLOCK``, which is a URL or a mapping that `connect` takes.

    It connects at its first use, in each process separately, and the interpreter's exit closes it.
    When tests run, it is a client of ``COORDLOCK["TEST"]``, or else of ``memory://``, so that no
    test waits for production's locks or holds them.

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
    given = {"url": found} if isinstance(found, str) else dict(found)
    for_tests = given.pop("TEST", "memory://tests")
    if not _tests_run():
        return given
    if isinstance(for_tests, Mapping):
        return dict(for_tests)
    kept = ("timeout", "max_hold", "label")
    return {"url": for_tests} | {name: given[name] for name in kept if name in given}


def check_settings(**_: Any) -> list[Any]:
    """Django's check of the settings: ``manage.py check``."""
    from django.core.checks import Error

    try:
        get_client()
    except coordlock.ConfigurationError as error:
        return [Error(str(error), id="coordlock.E001")]
    return []


def _tests_run() -> bool:
    """Whether this is a process of tests; also while it imports them.

    Only then is Django's test environment set up. Before that, modules that take a client as they
    are imported must not get production's.
    """
    by_pytest = "pytest" in sys.modules and "PYTEST_VERSION" in os.environ
    program = os.path.basename(sys.argv[0])
    by_command = sys.argv[1:2] == ["test"] and program in ("manage.py", "django-admin")
    of_django = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return by_pytest or by_command or hasattr(of_django, "saved_data")

"""The app for ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register

from coordlock.integrations.django.client import check_settings


class CoordlockConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Has the settings checked; brings the command ``locked`` and the table of `DjangoFence`."""

    name = "coordlock.integrations.django"
    label = "coordlock"

    def ready(self) -> None:
        """Register the check of the settings."""
        register(check_settings)

"""The table of `DjangoFence`."""

from __future__ import annotations

from django.db import models


class FenceMark(models.Model):  # type: ignore[misc]  # Django has no types
    """The newest tokens that a resource has seen; 0 for none."""

    resource = models.CharField(max_length=255, primary_key=True)
    exclusive_token = models.BigIntegerField(default=0)
    shared_token = models.BigIntegerField(default=0)

    class Meta:
        """The table is that of `coordlock.fencing.sql`, for programs that share it."""

        db_table = "coordlock_fence"

"""Answers for views that did not get their lock."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.http import JsonResponse
from django.utils.deprecation import MiddlewareMixin

from coordlock.integrations.statuses import refusal_of

__all__ = ["LockMiddleware"]

log: Final = logging.getLogger(__name__)


class LockMiddleware(MiddlewareMixin):  # type: ignore[misc]  # Django has no types
    """For ``MIDDLEWARE``: answers for locks where a view does not.

    423 where a lock was not granted in time, 503 where one was lost or the service of locks does
    not answer, each with ``Retry-After``. The log says why.
    """

    def process_exception(self, request: Any, exception: BaseException) -> JsonResponse | None:
        """The answer, or None for exceptions that are not about a lock."""
        if (refusal := refusal_of(exception)) is None:
            return None
        log.warning("%s %s: %d: %s", request.method, request.path, refusal.status, exception)
        return JsonResponse(refusal.body, status=refusal.status, headers=refusal.headers)

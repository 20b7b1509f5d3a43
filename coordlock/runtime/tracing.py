"""The trace that the caller is part of, where the application uses OpenTelemetry."""

from __future__ import annotations

import sys

from coordlock.runtime.log import Log

__all__ = ["trace_context"]

log = Log("coordlock")


def trace_context() -> dict[str, str]:
    """The headers that carry the current span, such as ``traceparent``; none without one."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        try:
            from opentelemetry import propagate

            propagate.inject(headers)
        except Exception:  # a propagator may be anybody's
            log.exception("the context of the trace could not be passed on")
    return headers

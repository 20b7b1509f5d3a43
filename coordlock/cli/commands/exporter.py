"""``coordlock exporter``: what is in the service, as metrics for Prometheus."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Final

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import UsageError
from coordlock.cli.text import echo
from coordlock.client import Client
from coordlock.telemetry.groups import Group, by_prefix, collapse_ids, constant
from coordlock.telemetry.metrics import Change
from coordlock.telemetry.survey import SERVICE_METRICS, UP, Survey

__all__ = ["exporter"]

#: Seconds for which what was read is shown again, whatever the number of scrapes; or how many
#: times as long as the reading took, so that a large service is not read all the time.
_FRESH_S: Final = 5.0
_FRESH_READINGS: Final = 10
#: Seconds that a request may take: a reading of the whole service takes less than the 10 s that
#: Prometheus waits.
_PATIENCE_S: Final = 3.0


def exporter(
    *,
    service: Service,
    listen: tuple[str, int],
    locks: list[str],
    elections: list[str],
    queues: list[str],
    with_prefix: bool,
    with_ids: bool,
    is_printed: bool,
) -> int:
    """Export what is in the service as metrics for Prometheus.

    One exporter is enough for a service. It shows all names in use with their holders, waiters and
    oldest waiter, the jobs with their last good slot, deadlocks, and the elections and work queues
    that you name. What a single process does, that process exports: see coordlock.telemetry.

    It reads the service when it is scraped, at most every five seconds, and less often if a reading
    takes long. While the service does not answer, it exports coordlock_service_up 0. It ends with
    Ctrl-C. It needs the extra prometheus.
    """
    from coordlock.telemetry.prometheus import exposed, serve

    settings = service.settings()
    patience = min(_PATIENCE_S, settings.request_timeout, settings.connect_timeout)
    settings = replace(settings, request_timeout=patience, connect_timeout=patience, fail_fast=True)
    with Client(settings) as client:
        survey = Survey(client, locks, elections, queues, _group(prefix=with_prefix, ids=with_ids))
        readings = _Readings(survey)
        if is_printed:
            echo(exposed(SERVICE_METRICS, readings.latest), end="")
            return Exit.OK if readings.is_up else Exit.UNAVAILABLE
        host, port = listen
        try:
            with serve(SERVICE_METRICS, readings.latest, host, port) as bound:
                complain(f"exporting {settings} at http://{host}:{bound}/metrics")
                threading.Event().wait()
        except OSError as error:
            raise UsageError(f"--listen {host}:{port}: {error.strerror}") from None
    return Exit.OK


def _group(*, prefix: bool, ids: bool) -> Group:
    if prefix:
        return by_prefix()
    return collapse_ids() if ids else constant


class _Readings:
    """Reads the service for a scrape, unless that was done just before."""

    def __init__(self, survey: Survey) -> None:
        self._survey: Final = survey
        self._lock: Final = threading.Lock()
        self._found: list[Change] = []
        #: Until when they are shown, in seconds of the monotonic clock.
        self._fresh_until = -math.inf

    @property
    def is_up(self) -> bool:
        """Whether the service answered the last reading."""
        return any(metric is UP and value for metric, value, _ in self._found)

    def latest(self) -> list[Change]:
        """What is in the service: read now, or not long ago."""
        with self._lock:
            if (begun := time.monotonic()) >= self._fresh_until:
                fresh = _FRESH_S
                try:
                    self._found = self._survey.read()
                    if self.is_up:
                        fresh = max(fresh, _FRESH_READINGS * (time.monotonic() - begun))
                finally:
                    self._fresh_until = time.monotonic() + fresh
            return self._found

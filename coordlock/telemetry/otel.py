"""Metrics and traces for OpenTelemetry, by `opentelemetry-api` alone: the extra ``otel``.

As in::

    import coordlock.telemetry.otel

    coordlock.telemetry.otel.instrument()

The application configures the SDK and its exporters, as for other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.model.events import (
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    Granted,
    LockEvent,
    Lost,
)
from coordlock.runtime.process import PROCESS
from coordlock.runtime.recorder import RECORDER, Event
from coordlock.runtime.worker import Worker
from coordlock.telemetry.groups import Group, capped, constant
from coordlock.telemetry.metrics import BUCKETS, METRICS, Measurements, Metric, gauges

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ConfigurationError.missing("coordlock.telemetry.otel", "otel") from error

__all__ = ["instrument"]

#: Seconds without events after which the thread for spans ends.
_IDLE_S: Final = 10.0


def instrument(
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    spans: bool = True,
    group: Group | None = None,
) -> Callable[[], None]:
    """Measure and trace all clients of this process from now on; returns what ends that.

    Without providers it takes the global ones. ``group`` is the function that gives the group of a
    lock's name, by default the same for all: see `by_prefix` and `collapse_ids`. At most 100 groups
    are told apart, and at most 100 elections, jobs and work queues by their names; the others show
    as ``other``.

    An acquire is a span ``acquire GROUP``, and the time for which the lock is held is a span
    ``hold GROUP``, both children of the span in which the lock was acquired. They have the lock's
    name, which metrics do not have. Without ``spans`` there are none.
    """
    measuring = _Measuring(
        metrics.get_meter("coordlock", meter_provider=meter_provider), Measurements(group)
    )
    removes = [RECORDER.add(measuring.record)]
    if spans:
        tracing = _Tracing(trace.get_tracer("coordlock", tracer_provider=tracer_provider), group)
        removes += [RECORDER.add(tracing.record), tracing.stop]

    def stop() -> None:
        for remove in removes:
            remove()
        measuring.stop()

    return stop


class _Measuring:
    def __init__(self, meter: Meter, measurements: Measurements) -> None:
        self.is_over = False
        self._measurements: Final = measurements
        self._changes: Final = {
            metric: _change(meter, metric) for metric in METRICS if metric.kind != "gauge"
        }
        #: The attributes of each series, as OpenTelemetry takes them.
        self._attributes: Final[dict[tuple[Metric, tuple[str, ...]], dict[str, str]]] = {}
        for metric in METRICS:
            if metric.kind == "gauge":
                meter.create_observable_gauge(
                    metric.name, [self._observed(metric)], metric.unit, metric.description
                )

    def record(self, event: Event) -> None:
        for metric, value, attributes in self._measurements.of(event):
            named = self._attributes.get((metric, attributes))
            if named is None:
                named = self._attributes[metric, attributes] = _named(metric, attributes)
            self._changes[metric](value, named)

    def stop(self) -> None:
        """Let all gauges be as if nothing were held."""
        self.is_over = True
        for metric, value, attributes in self._measurements.rest():
            self._changes[metric](value, _named(metric, attributes))

    def _observed(self, metric: Metric) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for changed, value, attributes in gauges():
                if changed is metric and not self.is_over:
                    yield Observation(value, _named(metric, attributes))

        return observe


def _named(metric: Metric, attributes: tuple[str, ...]) -> dict[str, str]:
    pairs = zip(metric.attributes, attributes, strict=True)
    return {name: value for name, value in pairs if value}


def _change(meter: Meter, metric: Metric) -> Callable[[float, dict[str, str]], Any]:
    facts = metric.name, metric.unit, metric.description
    match metric.kind:
        case "histogram":
            return meter.create_histogram(
                *facts, explicit_bucket_boundaries_advisory=BUCKETS
            ).record
        case "counter":
            return meter.create_counter(*facts).add
    return meter.create_up_down_counter(*facts).add


class _Tracing:
    """The spans of acquires and grants that are under way.

    The processors and exporters of spans are the application's, and may block. So spans are made in
    a thread of their own, with the times of the events.
    """

    def __init__(self, tracer: trace.Tracer, group: Group | None) -> None:
        self._tracer: Final = tracer
        self._group: Final = capped(group or constant)
        #: By the number of the acquire: its span or its grant's, and the context of its call.
        self._spans: Final[dict[int, tuple[Span, context.Context]]] = {}
        self._renew()

    def record(self, event: Event) -> None:
        if isinstance(event, LockEvent):
            if self._pid != PROCESS.id:  # the parent has the thread, and the spans
                self._spans.clear()
                self._renew()
            caller = context.get_current() if isinstance(event, AcquireStarted) else None
            self._worker.run(partial(self._take, event, caller))

    def stop(self) -> None:
        """End what is under way."""
        self._worker.run(self._end_all)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all spans so far were made; whether they were."""
        return self._worker.finish(timeout)

    def _renew(self) -> None:
        self._pid = PROCESS.id
        self._worker = Worker("coordlock-spans", _IDLE_S)

    def _end_all(self) -> None:
        while self._spans:
            self._spans.popitem()[1][0].end()

    def _take(self, event: LockEvent, caller: context.Context | None) -> None:
        if caller is not None:
            self._begin("acquire", event, caller, SpanKind.CLIENT)
            return
        if (found := self._spans.get(event.acquire)) is None:
            return  # it had begun before
        span, began = found
        match event:
            case AcquireWaiting(position=position):
                span.add_event("queued", {"coordlock.position": position}, _nanoseconds(event))
                return
            case Granted(token=token):
                span.set_attributes({"coordlock.token": token, "coordlock.outcome": "granted"})
                self._end(event)
                self._begin("hold", event, began, SpanKind.INTERNAL, token)
                return
            case AcquireFailed(outcome=outcome, error=error):
                span.set_attribute("coordlock.outcome", outcome)
                if outcome == "error":
                    span.set_attribute("error.type", error)
                    span.set_status(Status(StatusCode.ERROR, error))
            case Lost(text=text, reason=reason):
                span.add_event("lost", {"coordlock.reason": reason}, _nanoseconds(event))
                span.set_attribute("error.type", reason)
                span.set_status(Status(StatusCode.ERROR, text))
        self._end(event)

    def _begin(
        self, what: str, event: LockEvent, caller: context.Context, kind: SpanKind, token: int = 0
    ) -> None:
        attributes: dict[str, str | int] = {
            "coordlock.backend": event.backend,
            "coordlock.name": event.name,
            "coordlock.kind": event.kind,
            "coordlock.mode": event.mode,
        }
        if token:
            attributes["coordlock.token"] = token
        name = f"{what} {self._group(event.name)}"
        span = self._tracer.start_span(
            name, caller, kind, attributes, start_time=_nanoseconds(event)
        )
        self._spans[event.acquire] = span, caller

    def _end(self, event: LockEvent) -> None:
        span, _ = self._spans.pop(event.acquire)
        span.end(_nanoseconds(event))


def _nanoseconds(event: Event) -> int:
    return int(event.time * 1e9)

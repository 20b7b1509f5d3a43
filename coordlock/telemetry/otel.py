"""Metrics and traces for OpenTelemetry, by `opentelemetry-api` alone: the extra ``otel``.

As in::

    import coordlock.telemetry.otel

    coordlock.telemetry.otel.instrument()

The application configures the SDK and its exporters, as for other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from coordlock.errors import ConfigurationError
from coordlock.model.events import (
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    Granted,
    LockEvent,
    Lost,
    ReleaseRequested,
    SessionChanged,
    Upgraded,
)
from coordlock.runtime.process import PROCESS
from coordlock.runtime.recorder import MAX_PENDING, RECORDER, Event
from coordlock.runtime.worker import Worker
from coordlock.telemetry.groups import Group, capped, constant
from coordlock.telemetry.metrics import BUCKETS, METRICS, Measurements, Metric

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ConfigurationError.missing("coordlock.telemetry.otel", "otel") from error

__all__ = ["instrument"]

#: Seconds without events after which the thread for spans ends.
_IDLE_S: Final = 10.0
#: The providers of meters that are in use; None for the global one.
_measured: Final[list[MeterProvider | None]] = []


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

    Raises ValueError where it measures for this provider of meters already: everything would be
    counted twice.
    """
    if _used(meter_provider) in map(_used, _measured):
        raise ValueError(
            "coordlock is measured for this meter provider already: call instrument() once, or "
            "call what it returned before you call it again"
        )
    measuring = _Measuring(
        metrics.get_meter("coordlock", meter_provider=meter_provider), Measurements(group)
    )
    _measured.append(meter_provider)
    removes = [RECORDER.add(measuring.record)]
    if spans:
        tracing = _Tracing(trace.get_tracer("coordlock", tracer_provider=tracer_provider), group)
        removes += [RECORDER.add(tracing.record), tracing.stop]

    def stop() -> None:
        if measuring.is_over:
            return
        measuring.is_over = True
        _measured.remove(meter_provider)
        for remove in removes:
            remove()

    return stop


def _used(provider: MeterProvider | None) -> MeterProvider:
    return provider or metrics.get_meter_provider()


class _Measuring:
    def __init__(self, meter: Meter, measurements: Measurements) -> None:
        self.is_over = False
        self._measurements: Final = measurements
        self._changes: Final = {
            metric: _change(meter, metric) for metric in METRICS if not metric.is_read
        }
        #: The attributes of each series, as OpenTelemetry takes them.
        self._attributes: Final[dict[tuple[Metric, tuple[str, ...]], dict[str, str]]] = {}
        for metric in METRICS:
            facts = metric.name, [self._observed(metric)], metric.unit, metric.description
            if metric.kind == "updown":
                meter.create_observable_up_down_counter(*facts)
            elif metric.kind == "gauge":
                meter.create_observable_gauge(*facts)

    def record(self, event: Event) -> None:
        for metric, value, attributes in self._measurements.of(event):
            named = self._attributes.get((metric, attributes))
            if named is None:
                named = self._attributes[metric, attributes] = _named(metric, attributes)
            self._changes[metric](value, named)

    def _observed(self, metric: Metric) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for changed, value, attributes in () if self.is_over else self._measurements.gauges():
                if changed is metric:
                    yield Observation(value, _named(metric, attributes))

        return observe


def _named(metric: Metric, attributes: tuple[str, ...]) -> dict[str, str]:
    pairs = zip(metric.attributes, attributes, strict=True)
    return {name: value for name, value in pairs if value}


def _change(meter: Meter, metric: Metric) -> Callable[[float, dict[str, str]], Any]:
    facts = metric.name, metric.unit, metric.description
    if metric.kind == "counter":
        return meter.create_counter(*facts).add
    return meter.create_histogram(*facts, explicit_bucket_boundaries_advisory=BUCKETS).record


class _UnderWay(NamedTuple):
    """A span that has not ended, the context of the call that acquires, and its client's number."""

    span: Span
    caller: context.Context
    client: int


class _Tracing:
    """The spans of acquires and grants that are under way.

    The processors and exporters of spans are the application's, and may block. So spans are made in
    a thread of their own, with the times of the events. While 10,000 events wait for it, acquires
    that begin get no span.
    """

    def __init__(self, tracer: trace.Tracer, group: Group | None) -> None:
        self._tracer: Final = tracer
        self._group: Final = capped(group or constant)
        #: The acquires that have spans, by their numbers, until their last event.
        self._traced: Final[set[int]] = set()
        #: By the number of the acquire: its span or its grant's.
        self._spans: Final[dict[int, _UnderWay]] = {}
        self._renew()

    def record(self, event: Event) -> None:
        if self._pid != PROCESS.id:  # the parent has the thread, and the spans
            self._traced.clear()
            self._spans.clear()
            self._renew()
        caller: context.Context | None = None
        match event:
            case AcquireStarted(acquire=acquire):
                if self._worker.waiting >= MAX_PENDING:
                    return  # a processor blocks: this one has no span
                self._traced.add(acquire)
                caller = context.get_current()
            case LockEvent(acquire=acquire):
                if acquire not in self._traced:
                    return
                if not isinstance(event, AcquireWaiting | Granted | ReleaseRequested):
                    self._traced.discard(acquire)
            case SessionChanged(state="in doubt"):
                pass
            case _:
                return
        self._worker.run(partial(self._take, event, caller))

    def stop(self) -> None:
        """End what is under way."""
        self._worker.run(self._end_all)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all spans so far were made; whether they were."""
        return self._worker.finish(timeout)

    def _renew(self) -> None:
        self._pid = PROCESS.id
        self._worker = Worker("coordlock-spans", _IDLE_S, is_slow=True)

    def _end_all(self) -> None:
        while self._spans:
            self._spans.popitem()[1].span.end()

    def _take(self, event: LockEvent | SessionChanged, caller: context.Context | None) -> None:
        if isinstance(event, SessionChanged):
            self._suspect(event)
            return
        if caller is not None:
            self._begin("acquire", event, caller, SpanKind.CLIENT)
            return
        if (found := self._spans.get(event.acquire)) is None:
            return  # it was ended by `stop`
        span = found.span
        match event:
            case AcquireWaiting(position=position):
                span.add_event("queued", {"coordlock.position": position}, _nanoseconds(event))
                return
            case ReleaseRequested(reason=reason):
                span.add_event("asked", {"coordlock.reason": reason}, _nanoseconds(event))
                return
            case Granted(token=token):
                span.set_attributes({"coordlock.token": token, "coordlock.outcome": "granted"})
                self._end(event)
                self._begin("hold", event, found.caller, SpanKind.INTERNAL, token)
                return
            case Upgraded():
                span.set_attribute("coordlock.outcome", "granted")
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
        self._spans[event.acquire] = _UnderWay(span, caller, event.client)

    def _end(self, event: LockEvent) -> None:
        self._spans.pop(event.acquire).span.end(_nanoseconds(event))

    def _suspect(self, event: SessionChanged) -> None:
        """The session of a client is in doubt, and so is all that it holds and waits for."""
        for under_way in self._spans.values():
            if under_way.client == event.client:
                attributes = {"coordlock.reason": event.text}
                under_way.span.add_event("suspect", attributes, _nanoseconds(event))


def _nanoseconds(event: Event) -> int:
    return int(event.time * 1e9)

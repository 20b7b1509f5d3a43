"""The metrics and spans of a process as OpenTelemetry's SDK has them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coordlock.errors import AcquireTimeout
from coordlock.fencing.http import fenced
from coordlock.runtime.recorder import RECORDER
from coordlock.telemetry.metrics import BUCKETS
from coordlock.telemetry.otel import instrument
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually


@dataclass
class Sdk:
    reader: InMemoryMetricReader
    tracers: TracerProvider
    exporter: InMemorySpanExporter

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    sdk = Sdk(InMemoryMetricReader(), TracerProvider(), InMemorySpanExporter())
    sdk.tracers.add_span_processor(SimpleSpanProcessor(sdk.exporter))
    meters = MeterProvider([sdk.reader])
    stop = instrument(meter_provider=meters, tracer_provider=sdk.tracers)
    yield sdk
    stop()
    meters.shutdown()
    sdk.tracers.shutdown()


def test_a_lock_is_measured(locks: LockService, sdk: Sdk) -> None:
    client = locks.connect()
    with client.lock("a"):
        (active,) = sdk.points("coordlock.grant.active")
        assert active.value == 1
    (duration,) = sdk.points("coordlock.acquire.duration")
    assert duration.count == 1
    assert tuple(duration.explicit_bounds) == BUCKETS
    assert dict(duration.attributes) == {
        "backend": "memory",
        "group": "all",
        "kind": "lock",
        "mode": "EX",
        "outcome": "granted",
    }
    ages = sdk.points("coordlock.session.heartbeat.age")
    assert "memory" in [point.attributes["backend"] for point in ages]


def test_the_spans_of_a_lock_are_children_of_the_callers(locks: LockService, sdk: Sdk) -> None:
    client = locks.connect()
    with sdk.tracers.get_tracer("app").start_as_current_span("request") as request:
        grant = client.lock("orders").acquire()
    grant.release()
    eventually(lambda: len(sdk.spans()) == 3)
    spans = {span.name: span for span in sdk.spans()}
    for name in ("acquire all", "hold all"):
        span = spans[name]
        assert span.parent is not None
        assert span.parent.span_id == request.get_span_context().span_id
        assert span.attributes is not None
        assert span.attributes["coordlock.name"] == "orders"
        assert span.attributes["coordlock.token"] == grant.token
    assert spans["acquire all"].attributes["coordlock.outcome"] == "granted"  # type: ignore[index]


def test_a_busy_lock_and_a_loss_show_in_spans(locks: LockService, sdk: Sdk) -> None:
    client = locks.connect()
    with locks.held("a"), pytest.raises(AcquireTimeout):
        client.lock("a", timeout=0.01).acquire()
    eventually(lambda: any("timeout" in str(span.attributes) for span in sdk.spans()))
    failed = [
        span
        for span in sdk.spans()
        if span.attributes is not None and span.attributes.get("coordlock.outcome") == "timeout"
    ]
    assert [event.name for event in failed[0].events] == ["queued"]
    assert failed[0].status.is_unset
    grant = client.lock("a").acquire()
    locks.lose("a")
    locks.advance(client.settings.ttl / 2)
    grant.lost.wait(60)
    eventually(lambda: any(event.name == "lost" for span in sdk.spans() for event in span.events))
    (lost,) = [span for span in sdk.spans() if [event.name for event in span.events] == ["lost"]]
    assert lost.attributes is not None
    assert lost.attributes["error.type"] == "session"


def test_what_ended_is_not_measured_any_more(locks: LockService) -> None:
    reader = InMemoryMetricReader()
    stop = instrument(meter_provider=MeterProvider([reader]))
    stop()
    locks.connect().lock("a").acquire().release()
    assert not Sdk(reader, TracerProvider(), InMemorySpanExporter()).points(
        "coordlock.acquire.duration"
    )


def test_a_span_processor_that_blocks_delays_no_lock(locks: LockService) -> None:
    blocked, ended, tracers = threading.Event(), list[threading.Thread](), TracerProvider()

    class Blocking(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.append(threading.current_thread())
            blocked.wait(30)

    tracers.add_span_processor(Blocking())
    stop = instrument(meter_provider=MeterProvider(), tracer_provider=tracers)
    try:
        client = locks.connect()
        for _ in range(3):
            client.lock("a").acquire().release()
        assert len(ended) < 6, "the spans' thread is blocked, and the locks are done"
    finally:
        blocked.set()
        stop()
    eventually(lambda: len(ended) == 6)
    assert threading.main_thread() not in ended


def test_what_is_held_while_it_ends_is_not_measured_for_ever(locks: LockService) -> None:
    reader = InMemoryMetricReader()
    stop = instrument(meter_provider=MeterProvider([reader]), spans=False)
    sdk = Sdk(reader, TracerProvider(), InMemorySpanExporter())
    with locks.connect().lock("a"):
        assert sdk.points("coordlock.grant.active")[0].value == 1
        stop()
        assert not sdk.points("coordlock.grant.active")


def test_a_provider_of_meters_is_instrumented_once(locks: LockService, sdk: Sdk) -> None:
    client, reader = locks.connect(), InMemoryMetricReader()
    meters = MeterProvider([reader])
    instrument(meter_provider=meters, spans=False)()  # what has ended may begin again
    stop = instrument(meter_provider=meters, spans=False)
    listeners = RECORDER.listeners
    with pytest.raises(ValueError, match="already"):
        instrument(meter_provider=meters)
    assert RECORDER.listeners == listeners
    client.lock("a").acquire().release()
    measured = Sdk(reader, sdk.tracers, sdk.exporter).points("coordlock.acquire.duration")
    assert [point.count for point in measured] == [1]
    stop()
    stop()


def test_a_session_in_doubt_shows_in_the_spans_of_its_client(locks: LockService, sdk: Sdk) -> None:
    client, other = locks.connect(ttl=10), locks.connect(ttl=1000)
    held = [client.lock("mine").acquire(), other.lock("other").acquire()]
    with locks.silent():
        locks.advance(6)
    for grant in held:
        grant.release()
    eventually(lambda: len(sdk.spans()) == 4)
    suspects = [
        (span.attributes or {})["coordlock.name"]
        for span in sdk.spans()
        for event in span.events
        if event.name == "suspect"
    ]
    assert suspects == ["mine"]


def test_a_request_to_release_shows_in_the_span_of_the_hold(locks: LockService, sdk: Sdk) -> None:
    client, other = locks.connect(), locks.connect()
    with client.lock("orders") as grant:
        requested = grant.release_requested
        other.admin.request_release("orders", "a deployment waits")
        assert requested.wait(60)
    eventually(lambda: len(sdk.spans()) == 2)
    events = {span.name: [event.name for event in span.events] for span in sdk.spans()}
    assert events == {"acquire all": [], "hold all": ["asked"]}


def test_spans_of_acquires_that_begin_while_a_processor_blocks_for_long_are_dropped(
    locks: LockService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock.telemetry.otel.MAX_PENDING", 10)
    blocked, ended, tracers = threading.Event(), list[str](), TracerProvider()

    class Blocking(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            blocked.wait(30)
            ended.append(span.name)

    tracers.add_span_processor(Blocking())
    stop = instrument(meter_provider=MeterProvider(), tracer_provider=tracers)
    client = locks.connect()
    for _ in range(50):
        client.lock("a").acquire().release()
    blocked.set()
    client.lock("last").acquire().release()
    stop()
    eventually(lambda: ended.count("acquire all") == ended.count("hold all") > 1)
    assert len(ended) < 30


def test_the_current_span_reaches_a_fence_over_http(sdk: Sdk) -> None:
    sent: list[dict[str, str]] = []

    class Session:
        def request(self, *_: object, headers: dict[str, str]) -> SimpleNamespace:
            sent.append(headers)
            return SimpleNamespace(status_code=200, headers={}, content=b"")

    session = fenced(Session(), 3)
    session.get("/")
    with sdk.tracers.get_tracer("app").start_as_current_span("request") as span:
        session.get("/", headers={"Traceparent": "another", "X": "mine"})
    assert sent[0] == {"Fencing-Token": "3"}
    assert (sent[1]["X"], sent[1]["Fencing-Token"], len(sent[1])) == ("mine", "3", 3)
    assert format(span.get_span_context().span_id, "016x") in sent[1]["traceparent"]

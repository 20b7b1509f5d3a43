"""Metrics for Prometheus, by `prometheus_client`: the extra ``prometheus``.

As in::

    import coordlock.telemetry.prometheus

    coordlock.telemetry.prometheus.instrument()
    prometheus_client.start_http_server(9464)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.runtime.recorder import RECORDER, Event
from coordlock.telemetry.groups import Group
from coordlock.telemetry.metrics import BUCKETS, METRICS, Change, Measurements, Metric

try:
    import prometheus_client
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.metrics import MetricWrapperBase
except ImportError as error:
    raise ConfigurationError.missing("coordlock.telemetry.prometheus", "prometheus") from error

__all__ = ["instrument"]

_UNITS: Final = {"s": "_seconds"}


def exposed_name(metric: Metric) -> str:
    """The name of ``metric`` in Prometheus, without the ``_total`` of counters."""
    name = metric.name.replace(".", "_")
    return name if metric.kind == "updown" else name + _UNITS.get(metric.unit, "")


def instrument(
    registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
    *,
    group: Group | None = None,
) -> Callable[[], None]:
    """Count what all clients and fences of this process do from now on; returns what ends that.

    All series without attributes appear at once, the others with their first event. ``group`` is
    the function that gives the group of a lock's name, by default the same for all: see `by_prefix`
    and `collapse_ids`. At most 100 groups are told apart, and at most 100 elections, jobs and work
    queues by their names; the others show as ``other``.

    Raises ValueError when the registry has these metrics already.
    """
    return _Exposition(registry, Measurements(group)).start()


class _Exposition(prometheus_client.registry.Collector):
    def __init__(
        self, registry: prometheus_client.CollectorRegistry, measurements: Measurements
    ) -> None:
        self._registry: Final = registry
        self._measurements: Final = measurements
        self._metrics: Final = {metric: _made(metric) for metric in METRICS if not metric.is_read}
        #: What changes each series that there is.
        self._changes: Final[dict[tuple[Metric, tuple[str, ...]], Callable[[float], object]]] = {}

    def start(self) -> Callable[[], None]:
        mine = [*self._metrics.values(), self]
        registered: list[Any] = []
        try:
            for collector in mine:
                self._registry.register(collector)
                registered.append(collector)
        except ValueError:
            for collector in registered:
                self._registry.unregister(collector)
            raise
        remove = RECORDER.add(self._record)

        def stop() -> None:
            remove()
            while registered:
                self._registry.unregister(registered.pop())

        return stop

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What is read at each scrape."""
        read = (metric for metric in METRICS if metric.is_read)
        return _families(read, self._measurements.gauges())

    def _record(self, event: Event) -> None:
        for metric, value, attributes in self._measurements.of(event):
            change = self._changes.get((metric, attributes))
            if change is None:
                change = self._changes[metric, attributes] = self._change(metric, attributes)
            change(value)

    def _change(self, metric: Metric, attributes: tuple[str, ...]) -> Callable[[float], object]:
        made: Any = self._metrics[metric]
        series = made.labels(*attributes) if attributes else made
        changes: Callable[[float], object] = (
            series.observe if metric.kind == "histogram" else series.inc
        )
        return changes


def exposed(metrics: Sequence[Metric], read: Callable[[], Iterable[Change]]) -> str:
    """The gauges ``metrics`` with the values that ``read`` gives, as Prometheus reads them."""
    return prometheus_client.generate_latest(_registry(metrics, read)).decode()


@contextmanager
def serve(
    metrics: Sequence[Metric], read: Callable[[], Iterable[Change]], host: str, port: int
) -> Iterator[int]:
    """Answer Prometheus at ``host`` and ``port`` (0 for any) with what ``read`` gives; the port.

    Raises OSError where it can't listen there.
    """
    registry = _registry(metrics, read)
    server, thread = prometheus_client.start_http_server(port, host, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(
    metrics: Sequence[Metric], read: Callable[[], Iterable[Change]]
) -> prometheus_client.CollectorRegistry:
    class Collector(prometheus_client.registry.Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            return _families(metrics, read())

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    return registry


def _families(metrics: Iterable[Metric], found: Iterable[Change]) -> Iterator[GaugeMetricFamily]:
    values: dict[Metric, list[tuple[tuple[str, ...], float]]] = {}
    for changed, value, attributes in found:
        values.setdefault(changed, []).append((attributes, value))
    for metric in metrics:
        name, labels = exposed_name(metric), _labels(metric)
        family = GaugeMetricFamily(name, metric.description, labels=labels)
        for attributes, value in values.get(metric, ()):
            family.add_metric(attributes, value)
        yield family


def _labels(metric: Metric) -> list[str]:
    return [attribute.replace(".", "_") for attribute in metric.attributes]


def _made(metric: Metric) -> MetricWrapperBase:
    name, text, labels = exposed_name(metric), metric.description, _labels(metric)
    if metric.kind == "counter":
        return prometheus_client.Counter(name, text, labels, registry=None)
    return prometheus_client.Histogram(name, text, labels, buckets=BUCKETS, registry=None)

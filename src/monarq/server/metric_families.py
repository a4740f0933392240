"""Measured values as plain data: families of samples that can be sent, added up and shown.

Processes that share a port send each other theirs; what any of them shows is the sum. Shown as
Prometheus text or as JSON, both from the same families. Measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from monarq.times import iso

Labels = tuple[str, ...]


class Counts(Protocol):
    """A histogram as the broker and the server keep theirs."""

    @property
    def bounds(self) -> tuple[float, ...]: ...

    @property
    def counts(self) -> list[int]: ...

    @property
    def sum(self) -> float: ...


class Sample(Struct):
    labels: Labels
    value: float = 0.0
    counts: list[int] = []
    """Histograms: how many values fell at or below each bound, the last one for all above;
    `value` is their sum then."""


class Family(Struct):
    """All samples of one name."""

    name: str
    kind: str
    """`counter`, `gauge`, `histogram`, or `largest`: a gauge of which the largest counts."""
    help: str
    label_names: Labels = ()
    bounds: tuple[float, ...] = ()
    samples: list[Sample] = []


def counter(
    name: str, text: str, values: Iterable[tuple[Labels, float]], labels: Labels = ()
) -> Family:
    return Family(name, "counter", text, labels, (), [Sample(*pair) for pair in values])


def gauge(
    name: str, text: str, values: Iterable[tuple[Labels, float]], labels: Labels = ()
) -> Family:
    return Family(name, "gauge", text, labels, (), [Sample(*pair) for pair in values])


def histogram(
    name: str, text: str, values: Sequence[tuple[Labels, Counts]], labels: Labels = ()
) -> Family:
    bounds = values[0][1].bounds if values else ()
    samples = [Sample(key, counts.sum, list(counts.counts)) for key, counts in values]
    return Family(name, "histogram", text, labels, tuple(bounds), samples)


def added_up(processes: Iterable[Sequence[Family]]) -> list[Family]:
    """The families of several processes as one: values added, of `largest` the largest."""
    sums: dict[str, Family] = {}
    samples: dict[tuple[str, Labels], Sample] = {}
    for family in (family for families in processes for family in families):
        total = sums.setdefault(
            family.name,
            Family(family.name, family.kind, family.help, family.label_names, family.bounds, []),
        )
        for sample in family.samples:
            known = samples.get((family.name, sample.labels))
            if known is None:
                known = Sample(sample.labels, sample.value, list(sample.counts))
                samples[family.name, sample.labels] = known
                total.samples.append(known)
            elif family.kind == "largest":
                known.value = max(known.value, sample.value)
            else:
                known.value += sample.value
                pairs = zip(known.counts, sample.counts, strict=True)
                known.counts = [ours + theirs for ours, theirs in pairs]
    return list(sums.values())


def as_text(families: Sequence[Family]) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return generate_latest(registry)


def as_json(families: Sequence[Family], at: int) -> dict[str, Any]:
    """By name; a single sample without labels is its value, others are lists."""
    return {"timestamp": iso(at), "metrics": {family.name: _json_of(family) for family in families}}


def _json_of(family: Family) -> Any:
    if not family.label_names and family.kind != "histogram":
        return family.samples[0].value if family.samples else None
    rows: list[dict[str, Any]] = []
    for sample in family.samples:
        row: dict[str, Any] = dict(zip(family.label_names, sample.labels, strict=True))
        if family.kind == "histogram":
            count = sum(sample.counts)
            row |= {"count": count, "sum": sample.value}
            row |= {
                name: _quantile(family.bounds, sample.counts, part)
                for name, part in (("p50", 0.5), ("p99", 0.99))
            }
        else:
            row["value"] = sample.value
        rows.append(row)
    return rows


def _quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """The bound below which that part of the values fell; None if there are none, or above all."""
    wanted = sum(counts) * part
    if not wanted:
        return None
    for bound, reached in zip(bounds, accumulate(counts), strict=False):
        if reached >= wanted:
            return bound
    return None


class _Collector(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return [_metric(family) for family in self._families]


def _metric(family: Family) -> Metric:
    labels = list(family.label_names)
    if family.kind == "histogram":
        histogram_metric = HistogramMetricFamily(family.name, family.help, labels=labels)
        names = [*(_number(bound) for bound in family.bounds), "+Inf"]
        for sample in family.samples:
            buckets = list(zip(names, accumulate(sample.counts), strict=True))
            histogram_metric.add_metric(list(sample.labels), buckets, sample.value)
        return histogram_metric
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = kind(family.name, family.help, labels=labels)
    for sample in family.samples:
        metric.add_metric(list(sample.labels), sample.value)
    return metric


def _number(bound: float) -> str:
    return repr(float(bound))

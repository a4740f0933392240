"""Puts an analysis beside the queues, for the dashboard: its figures and its report, as records.

A record is small: of a large analysis, the longest lists are cut. The lake has everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from monarq.model import MAX_RECORD_BYTES
from monarq.model.pages import all_rows
from monarq.pipeline_records import ANALYSES_KEPT, ANALYSIS_KIND, REPORT_KIND, pack_report
from monarq.spark.pipelines.analyse.figures import Analysis
from monarq.spark.pipelines.analyse.running import Result
from monarq.spark.pipelines.registry import Records

#: What a broker puts around a record must fit as well.
_MOST_BYTES = MAX_RECORD_BYTES - 65_536

_LISTS = (
    "pushes",
    "deliveries",
    "partitions",
    "consumers",
    "errors",
    "changes",
    "groups",
    "queues",
    "jobs",
    "findings",
)


def publish(records: Records, result: Result) -> None:
    """Refusals are the caller's to tell; the analysis is in the lake already."""
    run = result.analysis.id
    report = pack_report(result.report)
    if len(report) <= _MOST_BYTES:
        records.put_record(REPORT_KIND, run, report)
    # Last, as this is what is listed: who finds it finds its report.
    records.put_record(ANALYSIS_KIND, run, encode_small(result.analysis))
    for kind in (ANALYSIS_KIND, REPORT_KIND):
        for key in list(_keys(records, kind))[:-ANALYSES_KEPT]:
            records.delete_record(kind, key)


def encode_small(analysis: Analysis, most: int = _MOST_BYTES) -> bytes:
    """The figures as JSON, cut until they fit: the busiest and the worst stand first."""
    encoded = msgspec.json.encode(_busiest_first(analysis))
    length = 400
    while len(encoded) > most and length:
        length //= 2
        encoded = msgspec.json.encode(_cut(_busiest_first(analysis), length))
    return encoded


def _busiest_first(analysis: Analysis) -> Analysis:
    """The series in the order of their queues, so that a cut takes the least."""
    order = {queue.queue: place for place, queue in enumerate(analysis.queues)}
    return msgspec.structs.replace(
        analysis,
        pushes=sorted(analysis.pushes, key=lambda each: order[each.queue]),
        deliveries=sorted(analysis.deliveries, key=lambda each: (order[each.queue], each.group)),
    )


def _cut(analysis: Analysis, length: int) -> Analysis:
    return msgspec.structs.replace(
        analysis, **{name: getattr(analysis, name)[:length] for name in _LISTS}
    )


def _keys(records: Records, kind: str) -> Iterator[str]:
    rows = all_rows(
        lambda limit, after: records.list_records(kind, limit=limit, after=after), step=100
    )
    return (record.key for record in rows)

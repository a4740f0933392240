"""All rules over one analysis: its findings, ranked."""

from __future__ import annotations

import msgspec

from monarq.spark.pipelines.analyse import findings, shifts
from monarq.spark.pipelines.analyse.comparing import compare
from monarq.spark.pipelines.analyse.figures import Analysis

RULES: tuple[findings.Rule, ...] = (
    findings.dead_letters,
    findings.failure_rates,
    findings.expired_leases,
    findings.backlogs,
    findings.standstills,
    findings.unconsumed,
    findings.hot_partitions,
    findings.slow_consumers,
    findings.wasted_work,
    shifts.slower,
    shifts.traffic,
)


def judge(analysis: Analysis, before: Analysis | None) -> Analysis:
    """The analysis with what has changed since the one before, and its findings."""
    if before is not None:
        analysis = msgspec.structs.replace(
            analysis,
            previous=before.id,
            previous_at=before.generated_at,
            changes=compare(analysis, before),
        )
    found = [finding for rule in RULES for finding in rule(analysis)]
    if before is not None:
        found += shifts.since_last(analysis, before)
    return msgspec.structs.replace(analysis, findings=findings.rank(found))

"""What the broker of this process counts, as metric families."""

from __future__ import annotations

from collections.abc import Mapping

from monarq.broker.measures import Measures
from monarq.server.metric_families import Family, Labels, counter, gauge, histogram


def measured(measures: Measures) -> list[Family]:
    calls = measures.calls()
    by_call = [(((name,)), measure) for name, measure in calls.items()]
    call = ("call",)
    return [
        counter(
            "monarq_calls",
            "Calls that the broker took",
            [(labels, float(measure.calls)) for labels, measure in by_call],
            call,
        ),
        counter(
            "monarq_call_messages",
            "Messages, acks or renewals in them that were carried out",
            [(labels, float(measure.messages)) for labels, measure in by_call],
            call,
        ),
        counter(
            "monarq_call_errors",
            "Calls that were answered with an error",
            [(labels, float(measure.errors)) for labels, measure in by_call],
            call,
        ),
        gauge(
            "monarq_store_calls_in_flight",
            "Calls to the store under way",
            [(labels, float(measure.in_flight)) for labels, measure in by_call],
            call,
        ),
        histogram(
            "monarq_batch_calls",
            "How many calls went to the store together",
            [(labels, measure.batch_calls) for labels, measure in by_call],
            call,
        ),
        histogram(
            "monarq_batch_messages",
            "How many messages went to the store together",
            [(labels, measure.batch_messages) for labels, measure in by_call],
            call,
        ),
        histogram(
            "monarq_store_seconds",
            "How long the store took for a call",
            [(labels, measure.seconds) for labels, measure in by_call],
            call,
        ),
        gauge("monarq_pops_parked", "Pops that wait for a message", _one(measures.pops_parked)),
        gauge("monarq_pops_pending", "Pops that wait for the store", _one(measures.pops_pending)),
        gauge("monarq_pops_leasing", "Pops the store is working on", _one(measures.pops_leasing)),
        counter(
            "monarq_pop_steps",
            "Pops by what became of them",
            _counted(measures.pop_steps),
            ("step",),
        ),
        counter(
            "monarq_pop_wakes", "Waiting pops woken, by cause", _counted(measures.wakes), ("cause",)
        ),
        counter("monarq_overloaded", "Calls refused: too many waited", _one(measures.overloaded)),
        counter(
            "monarq_store_calls_abandoned",
            "Calls to the store that did not answer in time",
            _one(measures.abandoned),
        ),
        counter(
            "monarq_guilty_requests",
            "Requests that made a batch fail, and then failed alone",
            _one(measures.guilty),
        ),
        counter(
            "monarq_store_failures",
            "How often the store was found to be down",
            _one(measures.store_failures),
        ),
        counter(
            "monarq_store_polls",
            "How often the store was asked whether anybody has written",
            _one(measures.polls),
        ),
        counter("monarq_lifecycle_steps", "Steps of the lifecycle", _one(measures.lifecycle_steps)),
        counter(
            "monarq_lifecycle_failures",
            "Steps of the lifecycle that failed",
            _one(measures.lifecycle_failures),
        ),
        counter(
            "monarq_lifecycle_rows",
            "What the lifecycle did",
            _counted(measures.lifecycle_done),
            ("done",),
        ),
        histogram(
            "monarq_lifecycle_seconds",
            "How long a step of the lifecycle took",
            [((), measures.lifecycle_seconds)],
        ),
        counter(
            "monarq_buffered_messages",
            "Messages that were written to the buffer",
            _one(measures.buffered),
        ),
        counter(
            "monarq_replayed_messages",
            "Messages that came from the buffer to the store",
            _one(measures.replayed),
        ),
        counter(
            "monarq_deferred_messages_lost",
            "Messages answered before they were durable that could not be stored",
            _one(measures.deferred_lost),
        ),
    ]


def _one(value: float) -> list[tuple[Labels, float]]:
    return [((), float(value))]


def _counted(counts: Mapping[str, int]) -> list[tuple[Labels, float]]:
    return [((name,), float(count)) for name, count in sorted(counts.items())]

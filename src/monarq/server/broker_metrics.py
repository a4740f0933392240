"""What the broker of this process counts, as metric families."""

from __future__ import annotations

from collections.abc import Mapping

from monarq.broker.measures import Measures
from monarq.clock import SECOND, SystemClock
from monarq.health import BufferHealth, Health, State
from monarq.server.metric_families import Family, Labels, Sample, counter, gauge, histogram


def measured(measures: Measures) -> list[Family]:
    return [
        *_of_calls(measures),
        *_of_pops(measures),
        *_of_faults(measures),
        *_of_lifecycle(measures),
        *_of_deferred(measures),
    ]


def _of_calls(measures: Measures) -> list[Family]:
    by_call = [((name,), measure) for name, measure in measures.calls().items()]
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
    ]


def _of_pops(measures: Measures) -> list[Family]:
    return [
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
        counter(
            "monarq_store_polls",
            "How often the store was asked whether anybody has written",
            _one(measures.polls),
        ),
    ]


def _of_faults(measures: Measures) -> list[Family]:
    return [
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
    ]


def _of_lifecycle(measures: Measures) -> list[Family]:
    return [
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
    ]


def _of_deferred(measures: Measures) -> list[Family]:
    """Messages that were answered before the store had them."""
    return [
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


def standing(health: Health) -> list[Family]:
    """How the broker is: its state, its buffer, its peers."""
    states = [((state.value,), float(health.state is state)) for state in State]
    switches = [
        (("push",), float(health.maintenance_push)),
        (("pop",), float(health.maintenance_pop)),
    ]
    waiting = [((name,), float(count)) for name, count in health.waiting.items()]
    families = [
        gauge("monarq_state", "Processes in each state", states, ("state",)),
        gauge("monarq_store_up", "Processes that reach the store", _one(health.store_ok)),
        gauge("monarq_maintenance", "Processes in maintenance", switches, ("calls",)),
        gauge("monarq_calls_waiting", "Calls that wait for the store", waiting, ("call",)),
        Family(
            "monarq_uptime_seconds",
            "largest",
            "Time since the oldest process started",
            samples=[Sample((), health.uptime_seconds)],
        ),
    ]
    if health.buffer is not None:
        families += _of_buffer(health.buffer)
    if health.peers is not None:
        families.append(
            counter(
                "monarq_peer_notices",
                "Datagrams and notices between brokers, by what became of them",
                _counted(health.peers),
                ("what",),
            )
        )
    return families


def _of_buffer(buffer: BufferHealth) -> list[Family]:
    age = 0.0
    if buffer.oldest is not None:
        age = max((SystemClock().now() - buffer.oldest) / SECOND, 0.0)
    return [
        gauge("monarq_buffer_bytes", "Bytes of pushes in the buffer", _one(buffer.bytes)),
        gauge("monarq_buffer_records", "Pushes in the buffer", _one(buffer.records)),
        gauge("monarq_buffer_files", "Files of the buffer", _one(buffer.files)),
        gauge(
            "monarq_buffer_set_aside",
            "Files of pushes that could not be replayed, for somebody to look at",
            _one(len(buffer.set_aside)),
        ),
        gauge(
            "monarq_buffer_in_use",
            "Processes whose pushes go to the buffer",
            _one(buffer.route != "direct"),
        ),
        Family(
            "monarq_buffer_oldest_seconds",
            "largest",
            "Age of the oldest push in the buffer",
            samples=[Sample((), age)],
        ),
    ]


def _one(value: float) -> list[tuple[Labels, float]]:
    return [((), float(value))]


def _counted(counts: Mapping[str, int]) -> list[tuple[Labels, float]]:
    return [((name,), float(count)) for name, count in sorted(counts.items())]

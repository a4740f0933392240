"""Acks and the pops that come after them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monarq.model import Ack, Acked, Pop, Popped
from monarq.store.contract import Outcome
from monarq.store.sqlite.acks import ack, refusals
from monarq.store.sqlite.calls import each
from monarq.store.sqlite.pop import pop
from monarq.store.sqlite.session import Session
from monarq.store.validation import check_pop

Both = tuple[list[Outcome[Acked]], list[Outcome[Popped]]]


def ack_and_pop(
    acks: Sequence[Ack], pops: Sequence[Pop], max_bytes: int
) -> Callable[[Session], Both]:
    """What to do in the transaction; what can be checked without it is."""
    bad_acks, bad_pops = refusals(acks), each(check_pop)(pops)

    def work(session: Session) -> Both:
        acked = ack(session, acks, bad_acks)
        # What they freed is found in the tables.
        session.flush()
        return acked, pop(session, pops, bad_pops, max_bytes=max_bytes)

    return work

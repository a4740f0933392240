"""Refuses what is malformed, by name of the field, before a store is touched.

Both stores call these and only these, so that they refuse the same things.
"""

from monarq.store.validation.commands import (
    check_commands,
    check_dead_queue_of_commands,
    check_mark_of_commands,
    check_may_work,
    check_redrive_of_commands,
    forbidden,
)
from monarq.store.validation.fields import (
    MAX_ERROR_LENGTH,
    check_common_name,
    check_int,
    check_json,
    check_label,
    check_limit,
    check_list,
    check_mark,
    check_max_bytes,
    check_name,
    check_seconds,
    check_text,
    check_time,
)
from monarq.store.validation.kinds import check_partial_clear, no_groups, wrong_kind
from monarq.store.validation.pushes import (
    PushShape,
    check_ordered_item,
    check_push,
    check_work_item,
    check_work_place,
    comes_too_early,
)
from monarq.store.validation.requests import (
    check_ack,
    check_dead_letter_filter,
    check_item_id,
    check_pop,
    check_renew,
    check_start,
    check_transaction,
    refuse_more_output,
)

__all__ = [
    "MAX_ERROR_LENGTH",
    "PushShape",
    "check_ack",
    "check_commands",
    "check_common_name",
    "check_dead_letter_filter",
    "check_dead_queue_of_commands",
    "check_int",
    "check_item_id",
    "check_json",
    "check_label",
    "check_limit",
    "check_list",
    "check_mark",
    "check_mark_of_commands",
    "check_max_bytes",
    "check_may_work",
    "check_name",
    "check_ordered_item",
    "check_partial_clear",
    "check_pop",
    "check_push",
    "check_redrive_of_commands",
    "check_renew",
    "check_seconds",
    "check_start",
    "check_text",
    "check_time",
    "check_transaction",
    "check_work_item",
    "check_work_place",
    "comes_too_early",
    "forbidden",
    "no_groups",
    "refuse_more_output",
    "wrong_kind",
]

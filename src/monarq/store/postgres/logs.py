"""The names in the delivery log."""

from __future__ import annotations

from monarq.store.queries.logs import DELIVERY_COLUMNS

DELIVERIES = f"""
    select d.id, q.name, coalesce(p.name, ''), coalesce(g.name, gone.name, ''), {DELIVERY_COLUMNS}
    from monarq.deliveries d join monarq.queues q on q.id = d.queue_id
    left join monarq.partitions p on p.id = d.partition_id
    left join monarq.groups g on g.id = d.group_id
    left join monarq.deleted_groups gone on gone.id = d.group_id
"""

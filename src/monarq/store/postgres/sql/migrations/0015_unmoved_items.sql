-- Ready items that have the usual priority and have not moved since they were pushed are by rank as
-- they are by seq, so items_ready has them in either order. Without them here a push writes an index
-- less, and so does each lease.
drop index monarq.items_by_state;
create index items_by_state on monarq.items (partition_id, state, seq)
    where state <> 'done' and (state <> 'ready' or rank <> seq - 5);

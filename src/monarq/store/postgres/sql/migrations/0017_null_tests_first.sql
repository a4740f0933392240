-- A push asks of every index whether it takes the new item. A null test takes a fraction of what a
-- comparison of texts does, and says no to an item that has nothing there yet. No two entries of
-- items_ready are alike, so a look for such before each split of a page finds none.
drop index monarq.items_expiring;
create index items_expiring on monarq.items (partition_id, expires_at)
    where expires_at is not null and state in ('ready', 'scheduled');
drop index monarq.items_finished;
create index items_finished on monarq.items (partition_id, finished_at)
    where finished_at is not null and state in ('done', 'cancelled');
alter index monarq.items_ready set (deduplicate_items = off);

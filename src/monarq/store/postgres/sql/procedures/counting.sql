-- Counters, and the time.

-- The caller's time if it has one (tests), else this server's: brokers need not agree on theirs.
create or replace function monarq.time(p_now bigint) returns bigint
    language sql volatile parallel safe
as $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

create or replace function monarq.shard() returns integer
    language sql stable parallel safe
as $$
    select pg_backend_pid() % 16
$$;

-- Adds to the counters of a queue (group 0) or of a group in it.
create or replace function monarq.tally(
    p_queue bigint, p_group bigint, pushed bigint default 0, removed bigint default 0,
    "position" bigint default 0, partitions bigint default 0, completed bigint default 0,
    failed bigint default 0, dead bigint default 0, dead_letters bigint default 0
) returns void
    language sql
as $$
    insert into monarq.counters as c (queue_id, group_id, shard, pushed, removed, position,
        partitions, completed, failed, dead, dead_letters)
    values (p_queue, p_group, monarq.shard(), $3, $4, $5, $6, $7, $8, $9, $10)
    on conflict (queue_id, group_id, shard) do update set
        pushed = c.pushed + excluded.pushed,
        removed = c.removed + excluded.removed,
        position = c.position + excluded.position,
        partitions = c.partitions + excluded.partitions,
        completed = c.completed + excluded.completed,
        failed = c.failed + excluded.failed,
        dead = c.dead + excluded.dead,
        dead_letters = c.dead_letters + excluded.dead_letters
$$;

-- Adds to the numbers of a work queue's items by state.
create or replace function monarq.tally_items(
    p_queue bigint, scheduled bigint default 0, ready bigint default 0, leased bigint default 0,
    done bigint default 0, cancelled bigint default 0, dead bigint default 0
) returns void
    language sql
as $$
    insert into monarq.counters as c (queue_id, group_id, shard, scheduled, ready, leased, done,
        cancelled, dead_items)
    values (p_queue, 0, monarq.shard(), $2, $3, $4, $5, $6, $7)
    on conflict (queue_id, group_id, shard) do update set
        scheduled = c.scheduled + excluded.scheduled,
        ready = c.ready + excluded.ready,
        leased = c.leased + excluded.leased,
        done = c.done + excluded.done,
        cancelled = c.cancelled + excluded.cancelled,
        dead_items = c.dead_items + excluded.dead_items
$$;

-- What a queue has pending, by its maxSize rule.
create or replace function monarq.pending(p_queue monarq.queues) returns bigint
    language sql stable
as $$
    select case when p_queue.kind = 'work'
        then (select coalesce(sum(scheduled + ready + leased), 0)
              from monarq.counters where queue_id = p_queue.id and group_id = 0)
        else (select coalesce(sum(pushed), 0)
              from monarq.counters where queue_id = p_queue.id and group_id = 0)
           - coalesce(
                (select min(position) from (
                    select sum(position) as position from monarq.counters
                    where queue_id = p_queue.id and group_id > 0 group by group_id
                ) as groups),
                (select sum(removed) from monarq.counters
                 where queue_id = p_queue.id and group_id = 0),
                0)
        end::bigint
$$;

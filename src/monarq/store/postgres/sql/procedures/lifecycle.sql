-- The lifecycle: bounded steps, each passing over what somebody else has locked.

-- After the server's clock was set back: what could be had stays so, and leases last as long as
-- they should. Otherwise both would wait until the clock is as late again. A delay and the time
-- that an item is scheduled for are left as they are.
create or replace function monarq.mend_times(p_now bigint) returns void
    language sql
as $$
    update monarq.rollups set at = p_now - p_now % (60 * 1000000);
    update monarq.unresolved set retry_at = p_now where retry_at > p_now;
    update monarq.cursors set available_at = p_now where available_at > p_now and lease_no is null;
    update monarq.cursors set lease_until = p_now + lease_until - leased_at,
        available_at = p_now + lease_until - leased_at, leased_at = p_now
        where lease_no is not null and leased_at > p_now;
    update monarq.items set due_at = p_now + due_at - leased_at, leased_at = p_now
        where state = 'leased' and leased_at > p_now;
$$;

-- How soon what is pushed may be too old, but no less than a tenth of a second; null: never.
create or replace function monarq.shortest_wait() returns bigint
    language sql stable
as $$
    select greatest(100000, (w.seconds * 1000000)::bigint)
    from (
        select least(
            (select min(max_wait_time_seconds) from monarq.queues where max_wait_time_seconds > 0),
            (select min(expire_timeout) from monarq.queues where expire_timeout > 0)) as seconds
    ) as w
    where w.seconds is not null
$$;

create or replace function monarq.dead_so_far(p_queue bigint) returns bigint
    language sql stable
as $$
    select coalesce(sum(dead), 0)::bigint from monarq.counters where queue_id = p_queue
$$;

create or replace function monarq.lifecycle(
    p_now bigint, p_limit integer,
    out next_at bigint, out expired integer, out promoted integer, out buried integer,
    out removed bigint, out wake text[]
)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_row record;
    q monarq.queues;
    p monarq.partitions;
    v_items record;
    v_tended record;
    v_dead bigint;
begin
    expired := 0; promoted := 0; buried := 0; removed := 0; wake := '{}';
    -- The minute of a step before this one is far ahead; some seconds are left to catch up with.
    if exists (select from monarq.rollups where at > v_now + 60 * 1000000) then
        perform monarq.mend_times(v_now);
        wake := array(select name from monarq.queues);
    end if;
    for v_row in
        select c.partition_id, c.group_id from monarq.cursors c
        where c.lease_until <= v_now
        order by c.lease_until limit p_limit for update skip locked
    loop
        select mq.* into q from monarq.queues mq join monarq.partitions mp on mp.queue_id = mq.id
            where mp.id = v_row.partition_id;
        v_dead := monarq.dead_so_far(q.id);
        perform monarq.settle(v_now, q, v_row.partition_id, v_row.group_id);
        v_dead := monarq.dead_so_far(q.id) - v_dead;
        buried := buried + v_dead;
        expired := expired + 1;
        wake := wake || q.name || case when v_dead > 0 then q.dead_queue end;
    end loop;

    for v_row in
        select partition_id from (
            select f.partition_id from monarq.first_due() f
            where f.due_at <= v_now
            order by f.due_at limit p_limit
        ) as due order by partition_id
    loop
        select mq.* into q from monarq.queues mq join monarq.partitions mp on mp.queue_id = mq.id
            where mp.id = v_row.partition_id;
        v_items := monarq.tend_items(v_now, q, v_row.partition_id, p_limit);
        expired := expired + v_items.expired;
        promoted := promoted + v_items.promoted;
        buried := buried + v_items.buried;
        wake := wake || q.name || case when v_items.buried > 0 then q.dead_queue end;
    end loop;

    for p in
        select * from monarq.partitions where check_at <= v_now
        order by check_at limit p_limit for update skip locked
    loop
        select * into q from monarq.queues where id = p.queue_id;
        v_dead := monarq.dead_so_far(q.id);
        if q.kind = 'work' then
            v_tended := monarq.tend_work_partition(v_now, q, p, p_limit);
        else
            v_tended := monarq.tend_partition(v_now, q, p, p_limit);
        end if;
        removed := removed + v_tended.removed;
        v_dead := monarq.dead_so_far(q.id) - v_dead;
        buried := buried + v_dead;
        wake := wake || case when v_dead > 0 then q.dead_queue end;
        exit when removed >= p_limit;
    end loop;

    removed := removed + monarq.trim_logs(v_now, p_limit);
    perform monarq.roll_up(v_now);
    wake := (select coalesce(array_agg(distinct w), '{}') from unnest(wake) w where w <> '');
    next_at := least(
        (select min(lease_until) from monarq.cursors),
        (select min(due_at) from monarq.first_due()),
        (select min(check_at) from monarq.partitions),
        (select min(pushed_at) + 86400 * 1000000::bigint from monarq.push_marks),
        v_now + monarq.shortest_wait(),
        v_now - v_now % (60 * 1000000) + 60 * 1000000);
end
$$;

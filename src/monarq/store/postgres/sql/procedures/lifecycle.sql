-- The lifecycle: bounded steps, each passing over what somebody else has locked.

-- Removes the oldest segments of a locked partition, up to a seq; how many messages. None while
-- somebody works on a cursor that would have to move: whoever acks locks the cursor before the
-- partition, so waiting here could be for ever.
create or replace function monarq.remove_segments(
    p_now bigint, p_queue bigint, p_partition bigint, p_upto bigint, p_limit integer
) returns bigint
    language plpgsql
as $$
declare
    v_rows tid[];
    v_ids text[];
    v_removed bigint;
    v_last bigint;
    c monarq.cursors;
    v_free integer;
begin
    perform 1 from monarq.cursors where partition_id = p_partition and position < p_upto
        order by group_id for update skip locked;
    get diagnostics v_free = row_count;
    if v_free < (select count(*) from monarq.cursors
            where partition_id = p_partition and position < p_upto) then
        return 0;
    end if;
    select array_agg(row), sum(count), max(first_seq + count - 1)
    into v_rows, v_removed, v_last from (
        select ctid as row, first_seq, count from monarq.segments
        where partition_id = p_partition and first_seq <= p_upto
            and first_seq + count - 1 <= p_upto
        order by first_seq limit p_limit
    ) as old;
    if v_removed is null then
        return 0;
    end if;
    with gone as (
        delete from monarq.segments where ctid = any (v_rows) returning transaction_ids
    )
    select array_agg(id) into v_ids from gone cross join lateral unnest(transaction_ids) as id
        where id is not null;
    perform monarq.forget_ids(p_partition, v_ids);
    update monarq.partitions set first_seq = v_last + 1, emptied_at = p_now
        where id = p_partition;
    perform monarq.tally(p_queue, 0, removed => v_removed);
    for c in
        select * from monarq.cursors where partition_id = p_partition and position < v_last
        order by group_id for update
    loop
        delete from monarq.unresolved
            where partition_id = p_partition and group_id = c.group_id and seq <= v_last;
        perform monarq.tally(p_queue, c.group_id, "position" => v_last - c.position);
        update monarq.cursors set position = v_last
            where partition_id = p_partition and group_id = c.group_id;
        c := monarq.advance(p_queue, p_partition, c.group_id);
        if c.lease_no is null then
            -- What it waited for may be gone.
            perform monarq.end_lease(p_partition, c.group_id, c.position,
                least(c.available_at, p_now), c.ended_answered);
        elsif c.lease_to <= c.position then
            perform monarq.end_lease(p_partition, c.group_id, c.position, p_now, false);
        else
            update monarq.cursors set lease_left = (
                select count(*) from generate_series(c.position + 1, c.lease_to) s
                where not exists (
                    select from monarq.unresolved u
                    where u.partition_id = p_partition and u.group_id = c.group_id and u.seq = s
                        and (u.acked or u.answered_lease_no = c.lease_no)))
                where partition_id = p_partition and group_id = c.group_id;
        end if;
    end loop;
    return v_removed;
end
$$;

-- Looks after one locked partition of an ordered queue; says when to look again (null: it is gone).
create or replace function monarq.tend_partition(
    p_now bigint, p_queue monarq.queues, p monarq.partitions, p_limit integer,
    out removed bigint, out next_at bigint
)
    language plpgsql
as $$
declare
    v_day constant bigint := 86400 * 1000000::bigint;
    v_wait bigint := (p_queue.max_wait_time_seconds * 1000000)::bigint;
    v_keep bigint := case when p_queue.retention_enabled
        then (p_queue.retention_seconds * 1000000)::bigint else 0 end;
    v_keep_done bigint := case when p_queue.retention_enabled
        then (p_queue.completed_retention_seconds * 1000000)::bigint else 0 end;
    v_consumed bigint;
    v_upto bigint := 0;
    v_head bigint;
    v_awaited boolean;
    -- An empty one stays for 7 days, however old its last message was.
    v_goes_at bigint := greatest(p.emptied_at, p.last_at) + 7 * v_day;
    c record;
begin
    if v_wait > 0 then
        for c in
            select group_id from monarq.cursors
            where partition_id = p.id and available_at is not null
                and (lease_no is null or lease_until <= p_now)
            order by group_id for update skip locked
        loop
            perform monarq.settle(p_now, p_queue, p.id, c.group_id);
        end loop;
    end if;

    select min(position) into v_consumed from monarq.cursors where partition_id = p.id;
    if v_keep > 0 then
        v_upto := monarq.seq_before(p.id, p_now - v_keep + 1);
    end if;
    if v_keep_done > 0 and v_consumed is not null then
        v_upto := greatest(v_upto,
            least(v_consumed, monarq.seq_before(p.id, p_now - v_keep_done + 1)));
    end if;
    if p_queue.retain_until_archived then
        v_upto := least(v_upto, p.archived_seq);
    end if;
    removed := case when v_upto >= p.first_seq
        then monarq.remove_segments(p_now, p_queue.id, p.id, v_upto, p_limit) else 0 end;

    select created_at, p_queue.retain_until_archived and first_seq + count - 1 > p.archived_seq
        into v_head, v_awaited from monarq.segments
        where partition_id = p.id order by first_seq limit 1;
    if v_awaited then
        -- Whoever archives it will say so.
        v_keep := 0;
        v_keep_done := 0;
    end if;
    if v_head is null then
        if removed = 0 and v_goes_at <= p_now and not exists (
            select from monarq.cursors
            where partition_id = p.id and (available_at is not null or lease_no is not null)
        ) then
            delete from monarq.cursors where partition_id = p.id;
            delete from monarq.ended_leases where partition_id = p.id;
            delete from monarq.unresolved where partition_id = p.id;
            delete from monarq.partitions where id = p.id;
            perform monarq.tally(p_queue.id, 0, partitions => -1);
            return;
        end if;
        next_at := case when removed > 0 then p_now + 7 * v_day
            when v_goes_at > p_now then v_goes_at else p_now + v_day end;
    else
        next_at := least(
            p_now + v_day,
            case when v_keep > 0 then v_head + v_keep end,
            -- Consumed or not, it has to be seen to; at least every minute once it is old enough.
            case when v_keep_done > 0 then greatest(v_head + v_keep_done,
                p_now + least(v_keep_done, 60 * 1000000::bigint)) end,
            case when v_wait > 0 then (
                select min(greatest(m.created_at + v_wait, p_now + 1000000))
                from monarq.cursors mc
                cross join lateral monarq.message_at(p.id, mc.position + 1) m
                where mc.partition_id = p.id) end,
            case when removed >= p_limit then p_now end);
    end if;
    update monarq.partitions set check_at = next_at where id = p.id;
end
$$;

-- The same for the one partition of a work queue.
create or replace function monarq.tend_work_partition(
    p_now bigint, p_queue monarq.queues, p monarq.partitions, p_limit integer,
    out removed bigint, out next_at bigint
)
    language plpgsql
as $$
declare
    v_day constant bigint := 86400 * 1000000::bigint;
    v_keep bigint := case when p_queue.retention_enabled
        then (p_queue.completed_retention_seconds * 1000000)::bigint else 0 end;
    v_seqs bigint[];
    v_done integer;
begin
    perform monarq.tend_items(p_now, p_queue, p.id, p_limit);
    removed := 0;
    if v_keep > 0 then
        select array_agg(seq), count(*) filter (where state = 'done') into v_seqs, v_done from (
            select seq, state from monarq.items
            where partition_id = p.id and state in ('done', 'cancelled')
                and finished_at <= p_now - v_keep
            order by finished_at limit p_limit for update skip locked
        ) as old;
        removed := coalesce(cardinality(v_seqs), 0);
        if removed > 0 then
            perform monarq.remove_items(p.id, v_seqs);
            perform monarq.tally_items(p_queue.id, done => -v_done,
                cancelled => v_done - removed);
            perform monarq.tally(p_queue.id, 0, removed => removed);
        end if;
    end if;
    next_at := least(
        p_now + v_day,
        (select min(expires_at) from monarq.items
            where partition_id = p.id and state in ('ready', 'scheduled')),
        case when v_keep > 0 then coalesce((select min(finished_at) + v_keep from monarq.items
            where partition_id = p.id and state in ('done', 'cancelled')), p_now + v_keep) end);
    update monarq.partitions set check_at = next_at where id = p.id;
end
$$;

-- Counters of every queue at the turn of a minute, where they changed since the last one.
create or replace function monarq.roll_up(p_now bigint) returns void
    language plpgsql
as $$
declare
    v_minute bigint := p_now - p_now % (60 * 1000000);
begin
    perform 1 from monarq.rollups where at < v_minute for update skip locked;
    if not found then
        return;
    end if;
    update monarq.rollups set at = v_minute;
    insert into monarq.metrics (at, queue_id, pushed, completed, failed, dead, pending)
    select v_minute, q.id, s.pushed, s.completed, s.failed, s.dead, monarq.pending(q)
    from monarq.queues q
    cross join lateral (
        select coalesce(sum(c.pushed), 0) as pushed, coalesce(sum(c.completed), 0) as completed,
            coalesce(sum(c.failed), 0) as failed, coalesce(sum(c.dead), 0) as dead
        from monarq.counters c where c.queue_id = q.id
    ) as s
    left join lateral (
        select * from monarq.metrics m where m.queue_id = q.id order by m.at desc limit 1
    ) as before on true
    where (s.pushed, s.completed, s.failed, s.dead)
        is distinct from (before.pushed, before.completed, before.failed, before.dead)
    on conflict do nothing;
end
$$;

-- Old rows of the logs; ids rise with time, so the oldest are the first.
create or replace function monarq.trim_logs(p_now bigint, p_limit integer) returns bigint
    language plpgsql
as $$
declare
    v_week constant bigint := 7 * 86400 * 1000000::bigint;
    v_removed bigint := 0;
    v_count bigint;
begin
    delete from monarq.deliveries where id in (
        select id from (select id, ended_at from monarq.deliveries order by id limit p_limit) as o
        where ended_at <= p_now - v_week);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.attempts where id in (
        select o.id from (select * from monarq.attempts order by id limit p_limit) as o
        where o.ended_at <= p_now - v_week and not exists (
            select from monarq.items i where i.partition_id = o.partition_id and i.seq = o.seq));
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    with gone as (
        delete from monarq.traces where id in (
            select id from (select id, created_at from monarq.traces order by id limit p_limit) as o
            where created_at <= p_now - v_week)
        returning id, names
    )
    delete from monarq.trace_names n using gone cross join lateral unnest(gone.names) as old (name)
        where n.name = old.name and n.trace_id = gone.id;
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.metrics where (queue_id, at) in (
        select queue_id, at from monarq.metrics where at <= p_now - 30 * v_week / 7
        order by at limit p_limit);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.push_marks where mark in (
        select mark from monarq.push_marks where pushed_at <= p_now - v_week / 7
        order by pushed_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.ended_leases where (partition_id, group_name) in (
        select partition_id, group_name from monarq.ended_leases
        where ended_at <= p_now - v_week order by ended_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.deleted_groups where id in (
        select id from monarq.deleted_groups where deleted_at <= p_now - v_week
        order by deleted_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.outputs where (partition_id, seq, attempt, start) in (
        select partition_id, seq, attempt, start from monarq.outputs
        where written_at <= p_now - v_week order by written_at limit p_limit
        for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.records where (kind, key) in (
        select kind, key from monarq.records where expires_at <= p_now
        order by expires_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    return v_removed + v_count;
end
$$;

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
        select distinct partition_id from (
            select partition_id from monarq.items
            where due_at <= v_now
            order by due_at limit p_limit
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
        (select min(due_at) from monarq.items),
        (select min(check_at) from monarq.partitions),
        (select min(pushed_at) + 86400 * 1000000::bigint from monarq.push_marks),
        v_now + monarq.shortest_wait(),
        v_now - v_now % (60 * 1000000) + 60 * 1000000);
end
$$;

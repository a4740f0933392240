-- Looking after partitions: what waited too long, what retention removes, when to look again.

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
    perform monarq.make_cursors_in(p_now, p_queue.id, p.id);
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

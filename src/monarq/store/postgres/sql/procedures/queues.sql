-- Making queues, partitions and groups. Whoever adds a partition or a group to a queue holds
-- the queue's row, so that each group has a cursor in each partition.

-- The ids of these partitions of a queue, made where they are missing. Null if the queue is gone.
create or replace function monarq.ensure_partitions(
    p_now bigint, p_queue bigint, p_names text[]
) returns table (name text, id bigint)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_made bigint[];
begin
    if (select count(*) from monarq.find_partitions(p_queue, p_names)) < cardinality(p_names) then
        perform 1 from monarq.queues q where q.id = p_queue for update;
        if not found then
            return;
        end if;
        with made as (
            insert into monarq.partitions as p (queue_id, name, last_at, check_at)
            select p_queue, n, 0, v_now + 7 * 86400 * 1000000::bigint
            from unnest(p_names) n order by n
            on conflict do nothing
            returning p.id
        )
        select array_agg(made.id) into v_made from made;
        if v_made is not null then
            insert into monarq.cursors (partition_id, group_id, position)
            select m, g.id, 0 from unnest(v_made) m cross join monarq.groups g
            where g.queue_id = p_queue;
            perform monarq.tally(p_queue, 0, partitions => cardinality(v_made));
        end if;
    end if;
    return query select * from monarq.find_partitions(p_queue, p_names);
end
$$;

-- The seq of the last message of a partition that is older than a time. created_at never falls
-- within a partition, so this is a search by halves.
create or replace function monarq.seq_before(p_partition bigint, p_time bigint) returns bigint
    language plpgsql stable
as $$
declare
    v_low bigint;
    v_high bigint;
    v_middle bigint;
    v_segment record;
begin
    select first_seq - 1, last_seq into v_low, v_high
        from monarq.partitions where id = p_partition;
    while v_low < v_high loop
        v_middle := (v_low + v_high + 1) / 2;
        select first_seq, count, created_at into v_segment from monarq.segments
            where partition_id = p_partition and first_seq <= v_middle
            order by first_seq desc limit 1;
        if v_segment.created_at < p_time then
            v_low := least(v_high, v_segment.first_seq + v_segment.count - 1);
        else
            v_high := v_segment.first_seq - 1;
        end if;
    end loop;
    return v_low;
end
$$;

-- Sets a cursor to a position with nothing leased or remembered, except for messages that are
-- not for its group: deleted ones, and those put back for another group alone. Answers the
-- position, which is behind those that follow at once.
create or replace function monarq.place_cursor(
    p_now bigint, p_partition bigint, p_group bigint, p_position bigint, p_last_seq bigint
) returns bigint
    language plpgsql
as $$
declare
    v_position bigint := p_position;
    v_marked bigint[];
begin
    delete from monarq.unresolved u
        where u.partition_id = p_partition and u.group_id = p_group;
    select array_agg(s.first_seq + i order by s.first_seq + i) into v_marked
    from monarq.segments s cross join lateral generate_series(0, s.count - 1) i
    where s.partition_id = p_partition and (s.deleted > 0 or s.for_group is not null)
        and s.first_seq + i > p_position
        and (monarq.offset_at(s.offsets, i) = monarq.offset_at(s.offsets, i + 1)
            or s.for_group <> (select g.name from monarq.groups g where g.id = p_group));
    if v_marked is not null then
        while v_marked[v_position - p_position + 1] = v_position + 1 loop
            v_position := v_position + 1;
        end loop;
        insert into monarq.unresolved (partition_id, group_id, seq, acked)
        select p_partition, p_group, m, true from unnest(v_marked) m where m > v_position;
    end if;
    insert into monarq.cursors as c (partition_id, group_id, position, available_at, has_unresolved)
    values (p_partition, p_group, v_position,
            case when v_position < p_last_seq then p_now end,
            coalesce(v_marked[cardinality(v_marked)] > v_position, false))
    on conflict (partition_id, group_id) do update set
        position = excluded.position,
        available_at = excluded.available_at,
        has_unresolved = excluded.has_unresolved,
        ended_lease_no = coalesce(c.lease_no, c.ended_lease_no),
        ended_answered = c.lease_no is null and c.ended_answered,
        lost_before_no = case when c.lease_no is null then c.lost_before_no
            else c.lost_lease_no end,
        lost_lease_no = greatest(c.lost_lease_no, c.lease_no),
        lease_no = null, lease_until = null, leased_at = null,
        lease_to = null, lease_left = 0, consumer = null;
    return v_position;
end
$$;

-- Where a group begins: what it asked for first, if it did before; noted otherwise. A start is
-- 0 for the beginning, -1 for now, or a time. Null if it was noted just now.
create or replace function monarq.note_start(
    p_now bigint, p_group text, p_queue text, p_namespace text, p_task text, p_start bigint
) returns bigint
    language plpgsql
as $$
declare
    v_noted bigint;
begin
    insert into monarq.subscriptions (group_name, queue_name, namespace, task, start_at)
    values (p_group, p_queue, p_namespace, p_task,
            case when p_start = -1 then p_now else p_start end)
    on conflict do nothing;
    if not found then
        select start_at into v_noted from monarq.subscriptions
            where group_name = p_group and queue_name = p_queue
                and namespace = p_namespace and task = p_task;
    end if;
    return v_noted;
end
$$;

-- Makes a group in an ordered queue, with a cursor in each partition, unless it exists.
create or replace function monarq.make_group(
    p_now bigint, p_queue bigint, p_group text, p_start bigint
) returns void
    language plpgsql
as $$
declare
    v_group bigint;
    v_lag bigint;
    v_marked record;
begin
    perform 1 from monarq.queues where id = p_queue for update;
    insert into monarq.groups (queue_id, name, start_at, created_at)
    values (p_queue, p_group, case when p_start = -1 then p_now else p_start end, p_now)
    on conflict do nothing returning id into v_group;
    if v_group is null then
        return;
    end if;
    -- Locked, so that a push under way either is seen here or sees the new cursor.
    perform 1 from monarq.partitions where queue_id = p_queue order by id for share;
    with made as (
        insert into monarq.cursors (partition_id, group_id, position, available_at, lost_lease_no)
        select p.id, v_group, start.position, case when start.position < p.last_seq then p_now end,
            -- Leases of a group of this name that was deleted have lower numbers.
            (select nextval('monarq.lease_numbers'))
        from monarq.partitions p
        cross join lateral (
            select case when p_start = -1 then p.last_seq when p_start = 0 then p.first_seq - 1
                else monarq.seq_before(p.id, p_start) end as position
            offset 0
        ) as start
        where p.queue_id = p_queue
        returning partition_id, position
    )
    select coalesce(sum(p.last_seq - m.position), 0) into v_lag
    from made m join monarq.partitions p on p.id = m.partition_id;
    -- What is too old for it may have been for nobody so far.
    update monarq.partitions p set check_at = p_now from monarq.queues q
        where q.id = p_queue and q.max_wait_time_seconds > 0 and p.queue_id = q.id
            and p.check_at > p_now;
    -- Where there is something that is not for it.
    for v_marked in
        select p.id, p.last_seq, c.position from monarq.partitions p
        cross join lateral (
            select from monarq.segments s
            where s.partition_id = p.id and (s.deleted > 0 or s.for_group is not null) limit 1
        ) as marked
        join monarq.cursors c on c.partition_id = p.id and c.group_id = v_group
        where p.queue_id = p_queue
    loop
        v_lag := v_lag + v_marked.position - monarq.place_cursor(p_now, v_marked.id, v_group,
            v_marked.position, v_marked.last_seq);
    end loop;
    perform monarq.tally(p_queue, v_group, "position" => (
        select coalesce(sum(pushed), 0)::bigint from monarq.counters
        where queue_id = p_queue and group_id = 0) - v_lag);
end
$$;

-- A group's first pop of a queue, which need not exist. Answers the start that holds.
create or replace function monarq.join_queue(
    p_now bigint, p_queue text, p_group text, p_start bigint
) returns bigint
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_start bigint;
begin
    v_start := coalesce(monarq.note_start(v_now, p_group, p_queue, '', '', p_start), p_start);
    perform monarq.make_group(v_now, q.id, p_group, v_start)
        from monarq.queues q where q.name = p_queue and q.kind = 'ordered';
    return case when v_start = -1 then v_now else v_start end;
end
$$;

-- A group's first pop by labels ('' for any), or one after queues were added.
create or replace function monarq.join_labels(
    p_now bigint, p_namespace text, p_task text, p_group text, p_start bigint
) returns bigint
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_start bigint;
    v_queue record;
begin
    v_start := coalesce(
        monarq.note_start(v_now, p_group, '', p_namespace, p_task, p_start), p_start);
    for v_queue in
        select q.id, q.name from monarq.queues q
        where q.kind = 'ordered' and (p_namespace = '' or q.namespace = p_namespace)
            and (p_task = '' or q.task = p_task)
            and not exists (select from monarq.groups g where g.queue_id = q.id and g.name = p_group)
        order by q.id
    loop
        perform monarq.make_group(v_now, v_queue.id, p_group, coalesce(
            monarq.note_start(v_now, p_group, v_queue.name, '', '', v_start), v_start));
    end loop;
    return case when v_start = -1 then v_now else v_start end;
end
$$;

-- Groups that asked for a queue before it existed, by its name or its labels, are there with it.
create or replace function monarq.join_new_queue(p_now bigint, p_queue bigint) returns void
    language sql
as $$
    with asked as (
        select distinct on (s.group_name) s.group_name, s.start_at, q.name as queue_name
        from monarq.queues q
        join monarq.subscriptions s on s.queue_name = q.name or (s.queue_name = ''
            and s.namespace in ('', q.namespace) and s.task in ('', q.task))
        where q.id = p_queue and q.kind = 'ordered'
        order by s.group_name, s.queue_name desc, s.start_at
    ), noted as (
        insert into monarq.subscriptions (group_name, queue_name, namespace, task, start_at)
        select group_name, queue_name, '', '', start_at from asked
        on conflict do nothing
    )
    insert into monarq.groups (queue_id, name, start_at, created_at)
    select p_queue, group_name, start_at, monarq.time(p_now) from asked order by group_name
    on conflict do nothing;
    -- With counters from the start: a group without them would not count as behind.
    select monarq.tally(p_queue, id) from monarq.groups where queue_id = p_queue order by id
$$;

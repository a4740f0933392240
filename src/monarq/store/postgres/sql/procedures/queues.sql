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

-- Makes the missing cursors of a group in some partitions of its queue. A cursor that is made after the
-- group equals the one that would have been made with it: its position follows from the group's start, and
-- it is available since the group was made, or since the first message after that. The group's counted
-- position has excluded what is kept, and is corrected.
create or replace function monarq.make_cursors(
    p_now bigint, g monarq.groups, p_partitions bigint[]
) returns void
    language plpgsql
as $$
declare
    v_made bigint[];
    v_moved bigint;
    v_marked record;
begin
    -- Locked, so that a push under way either is seen here or sees the new cursor.
    perform 1 from monarq.partitions where id = any (p_partitions) order by id for share;
    with made as (
        insert into monarq.cursors (partition_id, group_id, position, available_at, lost_lease_no)
        select p.id, g.id, start.position, case when start.position < p.last_seq then least(p_now,
                greatest(g.created_at, case when p.last_at > g.created_at then (
                    select s.created_at from monarq.segments s
                    where s.partition_id = p.id and s.first_seq <= start.position + 1
                    order by s.first_seq desc limit 1) end)) end,
            -- Leases of a group of this name that was deleted have lower numbers.
            (select nextval('monarq.lease_numbers'))
        from monarq.partitions p
        cross join lateral (
            select case when g.start_at = 0 then p.first_seq - 1
                when p.last_at < g.start_at then p.last_seq
                else monarq.seq_before(p.id, g.start_at) end as position
            offset 0
        ) as start
        where p.id = any (p_partitions)
        on conflict do nothing
        returning partition_id, position
    )
    select array_agg(p.id), coalesce(sum(m.position - p.first_seq + 1), 0) into v_made, v_moved
    from made m join monarq.partitions p on p.id = m.partition_id;
    -- What is too old for it may have been for nobody so far.
    update monarq.partitions p set check_at = p_now from monarq.queues q
        where q.id = g.queue_id and q.max_wait_time_seconds > 0 and p.id = any (v_made)
            and p.check_at > p_now;
    -- Where there is something that is not for it.
    for v_marked in
        select p.id, p.last_seq, c.position from monarq.partitions p
        cross join lateral (
            select from monarq.segments s
            where s.partition_id = p.id and (s.deleted > 0 or s.for_group is not null) limit 1
        ) as marked
        join monarq.cursors c on c.partition_id = p.id and c.group_id = g.id
        where p.id = any (v_made)
    loop
        v_moved := v_moved - v_marked.position + monarq.place_cursor(p_now, v_marked.id, g.id,
            v_marked.position, v_marked.last_seq);
    end loop;
    if v_moved <> 0 then
        perform monarq.tally(g.queue_id, g.id, "position" => v_moved);
    end if;
end
$$;

-- Makes the next cursors of a group that is being made, in order of partition id; how many. Whoever does so holds
-- the queue's row: of several at once, each goes on where the one before has stopped.
create or replace function monarq.make_next_cursors(p_now bigint, p_group bigint) returns integer
    language plpgsql
as $$
declare
    v_most constant integer := 4000;
    g monarq.groups;
    v_partitions bigint[];
begin
    perform 1 from monarq.queues q join monarq.groups mg on mg.queue_id = q.id
        where mg.id = p_group for update of q;
    select * into g from monarq.groups where id = p_group and joined_to is not null;
    if not found then
        return 0;
    end if;
    v_partitions := array(
        select id from monarq.partitions where queue_id = g.queue_id and id > g.joined_to
        order by id limit v_most);
    perform monarq.make_cursors(p_now, g, v_partitions);
    update monarq.groups set joined_to = case when cardinality(v_partitions) = v_most
        then v_partitions[v_most] end where id = p_group;
    return cardinality(v_partitions);
end
$$;

-- Makes the cursors of groups that are being made in one partition, before something needs all of them.
create or replace function monarq.make_cursors_in(
    p_now bigint, p_queue bigint, p_partition bigint
) returns void
    language sql
as $$
    select monarq.make_cursors(p_now, g, array[p_partition]) from monarq.groups g
    where g.queue_id = p_queue and g.joined_to is not null order by g.id
$$;

-- Makes more cursors for a pop: of groups that are being made, until one has a partition to offer that
-- waits as long as the group is there. What has no cursor yet waits no longer.
create or replace function monarq.make_for_pop(
    p_now bigint, p_groups bigint[], p_partition bigint
) returns void
    language plpgsql
as $$
declare
    v_group bigint;
begin
    if p_partition is not null then
        perform monarq.make_cursors_in(p_now, p.queue_id, p.id) from monarq.partitions p
            where p.id = p_partition;
        return;
    end if;
    foreach v_group in array p_groups loop
        for v_step in 1 .. 4 loop
            exit when not exists (
                select from monarq.groups g
                where g.id = v_group and g.joined_to is not null and not exists (
                    select from monarq.cursors c
                    where c.group_id = v_group and c.available_at <= least(g.created_at, p_now)));
            perform monarq.make_next_cursors(p_now, v_group);
        end loop;
    end loop;
end
$$;

-- Goes on with one group that is being made: the name of its queue, how many cursors were made, and
-- the time, if more is to be done.
create or replace function monarq.make_more_cursors(
    p_now bigint, out queue text, out made integer, out next_at bigint
)
    language plpgsql
as $$
declare
    v_group bigint;
    v_queue bigint;
begin
    made := 0;
    select id, queue_id into v_group, v_queue from monarq.groups
        where joined_to >= 0 order by joined_to limit 1;
    if v_group is not null then
        select name into queue from monarq.queues where id = v_queue;
        made := monarq.make_next_cursors(monarq.time(p_now), v_group);
        select monarq.time(p_now) into next_at from monarq.groups
            where joined_to >= 0 order by joined_to limit 1;
    end if;
end
$$;

-- Makes a group in an ordered queue, unless it exists, with its cursors in the first partitions. Pops and
-- the lifecycle make the others. A group that begins at the end has all cursors at once: where the end was
-- cannot be told later.
create or replace function monarq.make_group(
    p_now bigint, p_queue bigint, p_group text, p_start bigint
) returns void
    language plpgsql
as $$
declare
    g monarq.groups;
begin
    perform 1 from monarq.queues where id = p_queue for update;
    insert into monarq.groups (queue_id, name, start_at, created_at, joined_to)
    values (p_queue, p_group, case when p_start = -1 then p_now else p_start end, p_now,
        case when p_start <> -1 then 0 end)
    on conflict do nothing returning * into g;
    if g.id is null then
        return;
    end if;
    -- Locked, so that a push under way either is seen here or sees the new group.
    perform 1 from monarq.partitions where queue_id = p_queue order by id for share;
    if p_start = -1 then
        insert into monarq.cursors (partition_id, group_id, position, lost_lease_no)
        -- Leases of a group of this name that was deleted have lower numbers.
        select id, g.id, last_seq, (select nextval('monarq.lease_numbers'))
        from monarq.partitions where queue_id = p_queue;
    end if;
    perform monarq.tally(p_queue, g.id, "position" => (
        select coalesce(sum(pushed), 0)::bigint from monarq.counters
        where queue_id = p_queue and group_id = 0
    ) - case when p_start = -1 then 0 else (
        select coalesce(sum(last_seq - first_seq + 1), 0)::bigint from monarq.partitions
        where queue_id = p_queue) end);
    if p_start <> -1 then
        perform monarq.make_next_cursors(p_now, g.id);
    end if;
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

-- Rare calls that change much: seek, clear, delete. Locks: queue, partitions, cursors.

-- Moves the cursors of a group in some partitions of a queue. p_mode: start, end, time or seq.
create or replace function monarq.seek(
    p_now bigint, p_queue bigint, p_group bigint, p_partition bigint, p_mode text, p_value bigint
) returns bigint
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    p record;
    v_old bigint;
    v_new bigint;
    v_lag bigint := 0;
begin
    for p in
        select id, first_seq, last_seq from monarq.partitions
        where queue_id = p_queue and (p_partition is null or id = p_partition)
        order by id for share
    loop
        perform monarq.make_cursors_in(v_now, p_queue, p.id);
        select position into v_old from monarq.cursors
            where partition_id = p.id and group_id = p_group for update;
        v_new := case p_mode when 'start' then p.first_seq - 1 when 'end' then p.last_seq
            when 'time' then monarq.seq_before(p.id, p_value)
            else least(greatest(p_value - 1, p.first_seq - 1), p.last_seq) end;
        v_new := monarq.place_cursor(v_now, p.id, p_group, v_new, p.last_seq);
        perform monarq.tally(p_queue, p_group, "position" => v_new - coalesce(v_old, 0));
        v_lag := v_lag + p.last_seq - v_new;
    end loop;
    return v_lag;
end
$$;

-- Removes a group from a queue; what it completed still counts for the queue.
create or replace function monarq.delete_group(
    p_now bigint, p_queue bigint, p_group bigint
) returns void
    language plpgsql
as $$
begin
    perform 1 from monarq.queues where id = p_queue for update;
    perform 1 from monarq.partitions where queue_id = p_queue order by id for share;
    with gone as (
        delete from monarq.cursors where group_id = p_group
            and partition_id in (select id from monarq.partitions where queue_id = p_queue)
        returning *
    )
    insert into monarq.ended_leases (partition_id, group_name, lease_no, lease_token, answered,
        ended_at)
    select c.partition_id, g.name, coalesce(c.lease_no, c.ended_lease_no), c.lease_token,
        c.lease_no is null and c.ended_answered, monarq.time(p_now)
    from gone c join monarq.groups g on g.id = p_group
    where c.lease_token is not null
    on conflict (partition_id, group_name) do update set lease_no = excluded.lease_no,
        lease_token = excluded.lease_token, answered = excluded.answered,
        ended_at = excluded.ended_at;
    delete from monarq.unresolved where group_id = p_group
        and partition_id in (select id from monarq.partitions where queue_id = p_queue);
    with gone as (
        delete from monarq.groups where id = p_group returning id, name
    )
    insert into monarq.deleted_groups (id, name, deleted_at)
    select id, name, monarq.time(p_now) from gone;
    perform monarq.tally(p_queue, 0, completed => sum(completed)::bigint,
            failed => sum(failed)::bigint, dead => sum(dead)::bigint)
        from monarq.counters where queue_id = p_queue and group_id = p_group
        having count(*) > 0;
    delete from monarq.counters where queue_id = p_queue and group_id = p_group;
end
$$;

-- Removes the messages or items of a queue and returns their number. Groups are at the end then.
-- Of a work queue only the scheduled items, or only the items without a live lease.
create or replace function monarq.clear_queue(
    p_now bigint, p_queue bigint, p_scheduled_only boolean, p_keep_leased boolean
) returns bigint
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_kind text;
    v_count bigint;
    v_total bigint := 0;
    p record;
    c record;
begin
    select kind into v_kind from monarq.queues where id = p_queue for update;
    for p in
        select id, first_seq, last_seq from monarq.partitions where queue_id = p_queue
        order by id for no key update
    loop
        if v_kind = 'work' then
            with gone as (
                delete from monarq.items where partition_id = p.id and state <> 'dead'
                    and (not p_scheduled_only or state = 'scheduled')
                    and not (p_keep_leased and state = 'leased' and due_at > v_now)
                returning state, transaction_id
            ), forgotten as (
                delete from monarq.transaction_ids t using gone
                where t.partition_id = p.id and t.transaction_id = gone.transaction_id
            ), counted as (
                select count(*) as n, count(*) filter (where state = 'scheduled') as scheduled,
                    count(*) filter (where state = 'ready') as ready,
                    count(*) filter (where state = 'leased') as leased,
                    count(*) filter (where state = 'done') as done,
                    count(*) filter (where state = 'cancelled') as cancelled
                from gone
            )
            select n into v_count from counted cross join lateral (
                select monarq.tally_items(p_queue, scheduled => -counted.scheduled,
                    ready => -counted.ready, leased => -counted.leased, done => -counted.done,
                    cancelled => -counted.cancelled)) as t;
        else
            perform monarq.make_cursors_in(v_now, p_queue, p.id);
            delete from monarq.segments where partition_id = p.id;
            delete from monarq.transaction_ids where partition_id = p.id;
            v_count := p.last_seq - p.first_seq + 1;
            update monarq.partitions set first_seq = last_seq + 1, emptied_at = v_now
                where id = p.id and first_seq <= last_seq;
            for c in select group_id, position from monarq.cursors where partition_id = p.id
                order by group_id for update
            loop
                perform monarq.tally(p_queue, c.group_id, "position" => p.last_seq - c.position);
                perform monarq.place_cursor(v_now, p.id, c.group_id, p.last_seq, p.last_seq);
            end loop;
        end if;
        perform monarq.tally(p_queue, 0, removed => v_count);
        v_total := v_total + v_count;
    end loop;
    return v_total;
end
$$;

create or replace function monarq.delete_queue(p_queue bigint) returns void
    language plpgsql
as $$
declare
    v_partitions bigint[];
begin
    perform 1 from monarq.queues where id = p_queue for update;
    perform 1 from monarq.partitions where queue_id = p_queue order by id for update;
    select array_agg(id) into v_partitions from monarq.partitions where queue_id = p_queue;
    delete from monarq.unresolved where partition_id = any (v_partitions);
    delete from monarq.cursors where partition_id = any (v_partitions);
    delete from monarq.ended_leases where partition_id = any (v_partitions);
    delete from monarq.segments where partition_id = any (v_partitions);
    delete from monarq.transaction_ids where partition_id = any (v_partitions);
    delete from monarq.items where partition_id = any (v_partitions);
    delete from monarq.attempts where partition_id = any (v_partitions);
    delete from monarq.deliveries where queue_id = p_queue;
    delete from monarq.dead_letters where queue_id = p_queue;
    delete from monarq.partitions where queue_id = p_queue;
    delete from monarq.groups where queue_id = p_queue;
    delete from monarq.subscriptions s using monarq.queues q
        where q.id = p_queue and s.queue_name = q.name;
    delete from monarq.counters where queue_id = p_queue;
    delete from monarq.metrics where queue_id = p_queue;
    delete from monarq.queues where id = p_queue;
end
$$;

-- Empties a message's payload in its segment and keeps it from every group. Answers what is in
-- the way, or null.
create or replace function monarq.delete_message(
    p_now bigint, p_partition bigint, p_seq bigint
) returns text
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_queue bigint;
    s monarq.segments;
    c monarq.cursors;
    n integer;
    v_start integer;
    v_length integer;
    v_was bigint;
begin
    select queue_id into v_queue from monarq.partitions where id = p_partition for no key update;
    select * into s from monarq.segments
        where partition_id = p_partition and first_seq <= p_seq
        order by first_seq desc limit 1 for update;
    n := least(p_seq - s.first_seq, s.count);
    if s.first_seq is null or n >= s.count then
        return 'not_found';
    end if;
    v_start := monarq.offset_at(s.offsets, n);
    v_length := monarq.offset_at(s.offsets, n + 1) - v_start;
    if v_length = 0 then
        return 'not_found';
    end if;
    perform 1 from monarq.cursors where partition_id = p_partition order by group_id for update;
    if exists (
        select from monarq.cursors held
        where held.partition_id = p_partition and held.lease_until > v_now
            and p_seq > held.position and p_seq <= held.lease_to
            and not exists (
                select from monarq.unresolved u
                where u.partition_id = p_partition and u.group_id = held.group_id and u.seq = p_seq
                    and (u.acked or u.answered_lease_no = held.lease_no))
    ) then
        return 'conflict';
    end if;
    update monarq.segments set deleted = deleted + 1,
        data = overlay(data placing '' from v_start + 1 for v_length),
        offsets = (
            select string_agg(case when i <= n then substring(offsets from 4 * i + 1 for 4)
                else substring(monarq.single_offsets(monarq.offset_at(offsets, i) - v_length)
                    from 5 for 4) end, '' order by i)
            from generate_series(0, s.count) i)
        where partition_id = p_partition and first_seq = s.first_seq;
    for c in
        select * from monarq.cursors where partition_id = p_partition and position < p_seq
        order by group_id
    loop
        if c.lease_no is not null and c.lease_until <= v_now then
            perform monarq.settle(v_now, q, p_partition, c.group_id)
                from monarq.queues q where q.id = v_queue;
        end if;
        insert into monarq.unresolved (partition_id, group_id, seq, acked)
        values (p_partition, c.group_id, p_seq, true)
        on conflict (partition_id, group_id, seq) do update set acked = true;
        v_was := c.position;
        c := monarq.advance(v_queue, p_partition, c.group_id);
        if c.lease_no is null and c.position > v_was then
            -- The next message need not wait for the one that is gone.
            update monarq.cursors set available_at =
                case when not monarq.is_drained(p_partition, c.position) then
                    greatest(least(available_at, v_now), (
                        select u.retry_at from monarq.unresolved u
                        where u.partition_id = p_partition and u.group_id = c.group_id
                            and u.seq = c.position + 1)) end
                where partition_id = p_partition and group_id = c.group_id;
        end if;
    end loop;
    return null;
end
$$;

-- Makes finished or waiting items ready at the tail with no attempts made; their dead letters go.
create or replace function monarq.restart_items(
    p_now bigint, p_partition bigint, p_seqs bigint[]
) returns void
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    q monarq.queues;
    i monarq.items;
    v_last bigint;
    v_turns bigint;
    v_letters integer;
begin
    select last_seq into v_last from monarq.partitions where id = p_partition for no key update;
    select mq.* into q from monarq.queues mq join monarq.partitions p on p.queue_id = mq.id
        where p.id = p_partition;
    for i in
        select it.* from unnest(p_seqs) with ordinality as s (seq, place)
        cross join lateral (
            select * from monarq.items
            where partition_id = p_partition and seq = s.seq and state <> 'leased' for update
        ) as it
        order by s.place
    loop
        update monarq.partitions set turns = turns + 1 where id = p_partition
            returning turns into v_turns;
        update monarq.items set state = 'ready', attempts = 0, waited = 0, turn = v_turns,
            rank = v_last - priority, due_at = null, finished_at = null, error = null,
            consumer = null, expires_at = case when q.expire_timeout > 0
                then v_now + (q.expire_timeout * 1000000)::bigint end
            where partition_id = p_partition and seq = i.seq;
        delete from monarq.dead_letters
            where partition_id = p_partition and seq = i.seq and is_item;
        get diagnostics v_letters = row_count;
        perform monarq.tally(q.id, 0, dead_letters => -v_letters);
        perform monarq.tally_items(q.id, scheduled => -(i.state = 'scheduled')::integer,
            ready => 1 - (i.state = 'ready')::integer, done => -(i.state = 'done')::integer,
            cancelled => -(i.state = 'cancelled')::integer, dead => -(i.state = 'dead')::integer);
        update monarq.partitions set check_at = least(check_at, v_now) where id = p_partition;
    end loop;
end
$$;

-- Takes an item out of its queue; answers what is in the way, or null.
create or replace function monarq.cancel_item(
    p_now bigint, p_partition bigint, p_seq bigint
) returns text
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    i monarq.items;
begin
    select * into i from monarq.items where partition_id = p_partition and seq = p_seq for update;
    if i.seq is null then
        return 'not_found';
    elsif i.state not in ('scheduled', 'ready', 'leased') then
        return 'conflict';
    end if;
    if i.state = 'leased' then
        insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at, ended_at,
            outcome, consumer)
        values (i.queue_id, i.partition_id, i.seq, i.attempts, i.leased_at, v_now, 'cancelled',
            i.consumer);
    end if;
    update monarq.items set state = 'cancelled', finished_at = v_now, due_at = null,
        waited = monarq.item_age(i),
        ended_lease_no = coalesce(lease_no, ended_lease_no),
        ended_answered = lease_no is null and ended_answered,
        lease_no = null, leased_at = null
        where partition_id = p_partition and seq = p_seq;
    perform monarq.tally_items(i.queue_id, scheduled => -(i.state = 'scheduled')::integer,
        ready => -(i.state = 'ready')::integer, leased => -(i.state = 'leased')::integer,
        cancelled => 1);
    return null;
end
$$;

-- Restarts one item; answers what is in the way, or null.
create or replace function monarq.retry_item(
    p_now bigint, p_partition bigint, p_seq bigint
) returns text
    language plpgsql
as $$
declare
    v_state text;
begin
    perform 1 from monarq.partitions where id = p_partition for no key update;
    select state into v_state from monarq.items
        where partition_id = p_partition and seq = p_seq for update;
    if v_state is null then
        return 'not_found';
    elsif v_state = 'leased' then
        return 'conflict';
    end if;
    perform monarq.restart_items(p_now, p_partition, array[p_seq]);
    return null;
end
$$;

-- Removes one item with its dead letter; answers what is in the way, or null.
create or replace function monarq.delete_item(
    p_now bigint, p_partition bigint, p_seq bigint
) returns text
    language plpgsql
as $$
declare
    i monarq.items;
    v_letter bigint;
begin
    select * into i from monarq.items where partition_id = p_partition and seq = p_seq for update;
    if i.seq is null then
        return 'not_found';
    elsif i.state = 'leased' and i.due_at > monarq.time(p_now) then
        return 'conflict';
    end if;
    select id into v_letter from monarq.dead_letters
        where partition_id = p_partition and seq = p_seq and is_item;
    if v_letter is not null then
        perform monarq.drop_letters(array[v_letter]);
        return null;
    end if;
    perform monarq.remove_items(p_partition, array[p_seq]);
    perform monarq.tally(i.queue_id, 0, removed => 1);
    perform monarq.tally_items(i.queue_id, scheduled => -(i.state = 'scheduled')::integer,
        ready => -(i.state = 'ready')::integer, leased => -(i.state = 'leased')::integer,
        done => -(i.state = 'done')::integer, cancelled => -(i.state = 'cancelled')::integer,
        dead => -(i.state = 'dead')::integer);
    return null;
end
$$;

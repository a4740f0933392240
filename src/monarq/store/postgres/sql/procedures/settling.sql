-- What time and failure do to a cursor: expiry, eviction, burial. The cursor's row is locked by
-- whoever calls these. This is the path that a healthy consumer never takes.

create or replace function monarq.message_at(p_partition bigint, p_seq bigint) returns table (
    payload bytea, transaction_id text, trace_id text, producer text, headers text,
    created_at bigint
)
    language sql stable
as $$
    select substring(s.data from monarq.offset_at(s.offsets, i.n) + 1
            for monarq.offset_at(s.offsets, i.n + 1) - monarq.offset_at(s.offsets, i.n)),
        coalesce(s.transaction_ids[i.n + 1], p_partition || '-' || p_seq),
        s.trace_ids[i.n + 1], s.producers[i.n + 1], s.headers[i.n + 1], s.created_at
    from (
        select * from monarq.segments
        where partition_id = p_partition and first_seq <= p_seq
        order by first_seq desc limit 1
    ) as s
    -- Somebody may ask for a seq that is too far away for an integer.
    cross join lateral (select least(p_seq - s.first_seq, s.count)::integer as n) as i
    where i.n < s.count
$$;

-- The offsets of a segment with one message of this length.
create or replace function monarq.single_offsets(p_length integer) returns bytea
    language sql immutable strict parallel safe
as $$
    select set_byte(set_byte(set_byte(set_byte('\x0000000000000000'::bytea,
        4, p_length & 255), 5, (p_length >> 8) & 255),
        6, (p_length >> 16) & 255), 7, (p_length >> 24) & 255)
$$;

-- A JSON object's text with fields (another object's text) added at its end: of two fields with one
-- name the last one counts, and the sender may have used the names, or the message died before.
create or replace function monarq.with_fields(p_object text, p_fields text) returns text
    language sql immutable parallel safe
as $$
    select case when p_object is null or p_object ~ '^\s*\{\s*\}\s*$' then p_fields
        else left(rtrim(p_object, E' \t\n\r'), -1) || ', ' || substr(p_fields, 2) end
$$;

-- Appends one message to an ordered queue without regard to its maxSize, unless its transaction
-- id is there; the seq, or null.
create or replace function monarq.append(
    p_now bigint, p_queue bigint, p_partition text, p_payload bytea, p_transaction_id text,
    p_trace_id text, p_producer text, p_headers text
) returns bigint
    language plpgsql
as $$
declare
    v_partition bigint;
    v_seq bigint;
    v_at bigint;
begin
    select e.id into v_partition
        from monarq.ensure_partitions(p_now, p_queue, array[p_partition]) e;
    perform 1 from monarq.partitions where id = v_partition for no key update;
    -- An id that would name a message of this very partition is not kept.
    if p_transaction_id ~ ('^' || v_partition || '-[1-9][0-9]*$') then
        p_transaction_id := null;
    end if;
    if p_transaction_id is not null and exists (
        select from monarq.transaction_ids
        where partition_id = v_partition and transaction_id = p_transaction_id
    ) then
        return null;
    end if;
    update monarq.partitions
        set last_seq = last_seq + 1, last_at = greatest(last_at, p_now),
            check_at = least(check_at, p_now)
        where id = v_partition returning last_seq, last_at into v_seq, v_at;
    insert into monarq.segments (partition_id, first_seq, count, created_at, data, offsets,
        transaction_ids, trace_ids, producers, headers)
    values (v_partition, v_seq, 1, v_at, p_payload, monarq.single_offsets(length(p_payload)),
        case when p_transaction_id is not null then array[p_transaction_id] end,
        case when p_trace_id is not null then array[p_trace_id] end,
        case when p_producer is not null then array[p_producer] end,
        case when p_headers is not null then array[p_headers] end);
    if p_transaction_id is not null then
        insert into monarq.transaction_ids (partition_id, transaction_id, seq)
        values (v_partition, p_transaction_id, v_seq);
    end if;
    update monarq.cursors set available_at = p_now
        where partition_id = v_partition and available_at is null;
    perform monarq.tally(p_queue, 0, pushed => 1);
    return v_seq;
end
$$;

-- Makes messages dead for a group: kept as dead letters, moved to the dead queue, or dropped.
create or replace function monarq.bury(
    p_now bigint, p_queue monarq.queues, p_partition bigint, p_group bigint,
    p_seqs bigint[], p_attempts integer[], p_errors text[]
) returns void
    language plpgsql
as $$
declare
    v_group text := (select name from monarq.groups where id = p_group);
    v_partition text := (select name from monarq.partitions where id = p_partition);
    v_dead_queue bigint;
    v_kept bigint := 0;
begin
    if p_queue.dead_queue <> '' then
        select id into v_dead_queue from monarq.queues where name = p_queue.dead_queue;
        perform monarq.append(p_now, v_dead_queue, v_partition, m.payload, m.transaction_id,
            m.trace_id, m.producer, monarq.with_fields(m.headers, json_build_object(
                'monarqDeadFrom', p_queue.name, 'monarqDeadGroup', v_group,
                'monarqDeadAttempts', d.attempts, 'monarqDeadError', d.error)::text))
        from unnest(p_seqs, p_attempts, p_errors) as d (seq, attempts, error)
        cross join lateral monarq.message_at(p_partition, d.seq) m;
    elsif p_queue.dead_letter_queue then
        insert into monarq.dead_letters (queue_id, partition_id, partition_name, seq, group_name,
            is_item, transaction_id, payload, trace_id, producer, headers, error, attempts,
            created_at, failed_at)
        select p_queue.id, p_partition, v_partition, d.seq, v_group, false, m.transaction_id,
            m.payload, m.trace_id, m.producer, m.headers, d.error, d.attempts, m.created_at, p_now
        from unnest(p_seqs, p_attempts, p_errors) as d (seq, attempts, error)
        cross join lateral monarq.message_at(p_partition, d.seq) m
        order by d.seq;
        get diagnostics v_kept = row_count;
    end if;
    insert into monarq.unresolved (partition_id, group_id, seq, acked)
    select p_partition, p_group, s, true from unnest(p_seqs) s
    on conflict (partition_id, group_id, seq) do update set acked = true;
    perform monarq.tally(p_queue.id, p_group, dead => cardinality(p_seqs));
    perform monarq.tally(p_queue.id, 0, dead_letters => v_kept);
end
$$;

-- Whether a cursor at this position has nothing before it. Whoever would conclude so waits for
-- pushes under way; those that come later find the cursor drained and wake it.
create or replace function monarq.is_drained(p_partition bigint, p_position bigint) returns boolean
    language plpgsql
as $$
declare
    v_last bigint;
begin
    select last_seq into v_last from monarq.partitions where id = p_partition;
    if v_last > p_position then
        return false;
    end if;
    select last_seq into v_last from monarq.partitions where id = p_partition for share;
    return coalesce(v_last <= p_position, true);
end
$$;

-- A seq up to which there are so many unresolved messages behind a position, if so many are kept. A
-- series of all that is kept would be as long as the backlog.
create or replace function monarq.end_of_next(
    p_partition bigint, p_group bigint, p_position bigint, p_count integer
) returns bigint
    language sql stable
as $$
    select p_position + p_count + count(*) from monarq.unresolved
    where partition_id = p_partition and group_id = p_group and acked
$$;

-- Moves the position over what is resolved, and answers the cursor as it is then.
create or replace function monarq.advance(
    p_queue bigint, p_partition bigint, p_group bigint
) returns monarq.cursors
    language plpgsql
as $$
declare
    c monarq.cursors;
    v_position bigint;
begin
    select * into c from monarq.cursors where partition_id = p_partition and group_id = p_group;
    -- Leading acked seqs are those whose rank among the acked equals their distance.
    select max(seq) into v_position from (
        select seq, row_number() over (order by seq) as rank from monarq.unresolved
        where partition_id = p_partition and group_id = p_group and acked and seq > c.position
    ) as acked where seq = c.position + rank;
    v_position := coalesce(v_position, c.position);
    delete from monarq.unresolved
        where partition_id = p_partition and group_id = p_group and seq <= v_position;
    if v_position > c.position then
        perform monarq.tally(p_queue, p_group, "position" => v_position - c.position);
    end if;
    update monarq.cursors set position = v_position, has_unresolved = exists (
            select from monarq.unresolved where partition_id = p_partition and group_id = p_group)
        where partition_id = p_partition and group_id = p_group
        returning * into c;
    return c;
end
$$;

-- Ends the lease of a cursor. p_from is the earliest time at which it may be popped again.
create or replace function monarq.end_lease(
    p_partition bigint, p_group bigint, p_position bigint, p_from bigint, p_answered boolean
) returns void
    language sql
as $$
    update monarq.cursors set
        ended_lease_no = coalesce(lease_no, ended_lease_no),
        ended_answered = p_answered,
        lost_before_no = case when p_answered or lease_no is null then lost_before_no
            else lost_lease_no end,
        lost_lease_no = greatest(lost_lease_no, case when not p_answered then lease_no end),
        lease_no = null, lease_until = null, leased_at = null,
        lease_to = null, lease_left = 0, consumer = null,
        available_at = case when monarq.is_drained(p_partition, p_position) then null
            else greatest(p_from, (
                select u.retry_at from monarq.unresolved u
                where u.partition_id = p_partition and u.group_id = p_group
                    and u.seq = p_position + 1)) end
    where partition_id = p_partition and group_id = p_group
$$;

-- A lease that expired: its messages without an answer become suspects. The delivery counts only if
-- the lease was over a single message.
create or replace function monarq.expire_lease(
    p_now bigint, p_queue monarq.queues, c monarq.cursors
) returns integer
    language plpgsql
as $$
declare
    v_reason constant text := 'the lease expired without an answer';
    v_seqs bigint[];
    v_dead bigint[];
    v_attempts integer[];
begin
    select array_agg(s order by s) into v_seqs
    from generate_series(c.position + 1, c.lease_to) s
    where not exists (
        select from monarq.unresolved u
        where u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = s
            and (u.acked or u.answered_lease_no = c.lease_no)
    );
    if v_seqs is not null then
        insert into monarq.unresolved as u (partition_id, group_id, seq, attempts, error, lease_limit)
        select c.partition_id, c.group_id, s, c.lease_of_one::integer, v_reason,
            greatest(cardinality(v_seqs) / 2, 1)
        from unnest(v_seqs) s
        on conflict (partition_id, group_id, seq) do update set
            attempts = u.attempts + excluded.attempts, retry_at = null, error = excluded.error,
            lease_limit = excluded.lease_limit;
        if c.lease_of_one and p_queue.dlq_after_max_retries then
            select array_agg(seq order by seq), array_agg(attempts order by seq)
            into v_dead, v_attempts from monarq.unresolved
            where partition_id = c.partition_id and group_id = c.group_id
                and seq = any (v_seqs) and attempts > p_queue.retry_limit;
        end if;
        if v_dead is not null then
            perform monarq.bury(p_now, p_queue, c.partition_id, c.group_id, v_dead, v_attempts,
                array_fill(v_reason, array[cardinality(v_dead)]));
        end if;
        insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no,
            leased_at, ended_at, first_seq, last_seq, expired, dead, error)
        values (p_queue.id, c.partition_id, c.group_id, c.consumer, c.lease_no, c.leased_at,
            c.lease_until, v_seqs[1], v_seqs[cardinality(v_seqs)],
            cardinality(v_seqs) - coalesce(cardinality(v_dead), 0),
            coalesce(cardinality(v_dead), 0), v_reason);
        if c.lease_of_one then
            perform monarq.tally(p_queue.id, c.group_id, failed => 1);
        end if;
    end if;
    return coalesce(cardinality(v_dead), 0);
end
$$;

-- Brings a cursor that is not under a live lease up to date; answers it as it is then.
create or replace function monarq.settle(
    p_now bigint, p_queue monarq.queues, p_partition bigint, p_group bigint
) returns monarq.cursors
    language plpgsql
as $$
declare
    c monarq.cursors;
    v_from bigint;
    v_old bigint[];
    v_attempts integer[];
begin
    select * into c from monarq.cursors where partition_id = p_partition and group_id = p_group;
    if c.lease_no is not null then
        v_from := c.lease_until;
        perform monarq.expire_lease(p_now, p_queue, c);
    end if;
    if p_queue.max_wait_time_seconds > 0 then
        select array_agg(s order by s), array_agg(attempts order by s) into v_old, v_attempts from (
            select s, coalesce(u.attempts, 0) as attempts
            from generate_series(c.position + 1, least(
                monarq.seq_before(p_partition,
                    p_now - (p_queue.max_wait_time_seconds * 1000000)::bigint + 1),
                monarq.end_of_next(p_partition, p_group, c.position, 1000))) s
            left join monarq.unresolved u
                on u.partition_id = p_partition and u.group_id = p_group and u.seq = s
            where u.acked is not true
            order by s limit 1000
        ) as old;
        if v_old is not null then
            perform monarq.bury(p_now, p_queue, p_partition, p_group, v_old, v_attempts,
                array_fill('waited longer than maxWaitTimeSeconds'::text,
                    array[cardinality(v_old)]));
        end if;
    end if;
    c := monarq.advance(p_queue.id, p_partition, p_group);
    if v_from is not null then
        perform monarq.end_lease(p_partition, p_group, c.position, v_from, false);
    elsif v_old is not null and monarq.is_drained(p_partition, c.position) then
        update monarq.cursors set available_at = null
            where partition_id = p_partition and group_id = p_group;
    end if;
    select * into c from monarq.cursors where partition_id = p_partition and group_id = p_group;
    return c;
end
$$;

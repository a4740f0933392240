-- Items: added, buried, removed, and what time does to them.

-- Adds one item to a work queue without regard to its maxSize, unless its transaction id is
-- there; the seq, or null. Only a queue that runs commands takes the mark of a command.
create or replace function monarq.append_item(
    p_now bigint, p_queue monarq.queues, p_priority integer, p_payload bytea,
    p_transaction_id text, p_trace_id text, p_producer text, p_headers text, p_command boolean
) returns bigint
    language plpgsql
as $$
declare
    p monarq.partitions;
begin
    select e.id into p.id from monarq.ensure_partitions(p_now, p_queue.id, array['Default']) e;
    perform 1 from monarq.partitions where id = p.id for no key update;
    -- An id that would name a message of this very partition is not kept.
    if p_transaction_id ~ ('^' || p.id || '-[1-9][0-9]*$') then
        p_transaction_id := null;
    end if;
    if p_transaction_id is not null and exists (
        select from monarq.transaction_ids
        where partition_id = p.id and transaction_id = p_transaction_id
    ) then
        return null;
    end if;
    update monarq.partitions set last_seq = last_seq + 1, turns = turns + 1,
        last_at = greatest(last_at, p_now), check_at = least(check_at, p_now)
        where id = p.id returning * into p;
    insert into monarq.items (partition_id, seq, queue_id, state, priority, rank, turn, expires_at,
        max_attempts, backoff_base, created_at, payload, transaction_id, trace_id, producer,
        headers, is_command)
    values (p.id, p.last_seq, p_queue.id, 'ready', p_priority, p.last_seq - p_priority, p.turns,
        case when p_queue.expire_timeout > 0
            then p.last_at + (p_queue.expire_timeout * 1000000)::bigint end,
        p_queue.max_attempts, p_queue.backoff_base, p.last_at, p_payload, p_transaction_id,
        p_trace_id, p_producer, p_headers, p_command and p_queue.runs_commands);
    if p_transaction_id is not null then
        insert into monarq.transaction_ids (partition_id, transaction_id, seq)
        values (p.id, p_transaction_id, p.last_seq);
    end if;
    perform monarq.tally(p_queue.id, 0, pushed => 1);
    perform monarq.tally_items(p_queue.id, ready => 1);
    return p.last_seq;
end
$$;

-- What an item has waited: while it is ready, it grows with each push.
create or replace function monarq.item_age(i monarq.items) returns bigint
    language sql stable
as $$
    select case when i.state = 'ready'
        then (select last_seq from monarq.partitions where id = i.partition_id)
            - i.rank - i.priority
        else i.waited end
$$;

-- The items of a queue that are leased.
create or replace function monarq.leased_items(p_queue bigint) returns setof monarq.items
    language sql stable
as $$
    select * from monarq.items where lease_no is not null and queue_id = p_queue
$$;

-- Of each queue that has items with a time (run times, deadlines) the first of these. Each look
-- into the index finds the next queue, whatever others have.
create or replace function monarq.first_due()
    returns table (partition_id bigint, due_at bigint)
    language sql stable
as $$
    with recursive first as (
        (select i.partition_id, i.due_at from monarq.items i where i.due_at is not null
            order by i.partition_id, i.due_at limit 1)
        union all
        select behind.* from first f
        cross join lateral (
            select i.partition_id, i.due_at from monarq.items i
            where i.due_at is not null and i.partition_id > f.partition_id
            order by i.partition_id, i.due_at limit 1
        ) as behind
    )
    select * from first
$$;

-- Makes locked items dead: kept as dead letters, moved to the dead queue, or dropped. Counters
-- of states are the caller's, but for the dead.
create or replace function monarq.bury_items(
    p_now bigint, p_queue monarq.queues, p_partition bigint, p_seqs bigint[], p_errors text[]
) returns void
    language plpgsql
as $$
declare
    v_dead_queue monarq.queues;
begin
    if p_queue.dead_queue <> '' then
        select * into v_dead_queue from monarq.queues where name = p_queue.dead_queue;
        perform monarq.append_item(p_now, v_dead_queue, i.priority, i.payload,
            coalesce(i.transaction_id, i.partition_id || '-' || i.seq), i.trace_id, i.producer,
            monarq.with_fields(i.headers, json_build_object('monarqDeadFrom', p_queue.name,
                'monarqDeadGroup', '', 'monarqDeadAttempts', i.attempts,
                'monarqDeadError', d.error)::text), i.is_command)
        from unnest(p_seqs, p_errors) as d (seq, error)
        cross join lateral (
            select * from monarq.items where partition_id = p_partition and seq = d.seq offset 0
        ) as i;
        perform monarq.remove_items(p_partition, p_seqs);
    elsif p_queue.dead_letter_queue then
        insert into monarq.dead_letters (queue_id, partition_id, partition_name, seq, group_name,
            is_item, transaction_id, payload, trace_id, producer, headers, error, attempts,
            created_at, failed_at)
        select p_queue.id, p_partition, 'Default', i.seq, '', true,
            coalesce(i.transaction_id, i.partition_id || '-' || i.seq), i.payload, i.trace_id,
            i.producer, i.headers, d.error, i.attempts, i.created_at, p_now
        from unnest(p_seqs, p_errors) as d (seq, error)
        cross join lateral (
            select * from monarq.items where partition_id = p_partition and seq = d.seq offset 0
        ) as i
        order by i.seq;
        update monarq.items i set state = 'dead', due_at = null, finished_at = p_now,
            waited = monarq.item_age(i), error = d.error, lease_no = null, leased_at = null,
            ended_lease_no = coalesce(i.lease_no, i.ended_lease_no),
            ended_answered = case when i.lease_no is null then i.ended_answered
                else i.due_at > p_now end
        from unnest(p_seqs, p_errors) as d (seq, error)
        cross join lateral (
            select ctid from monarq.items where partition_id = p_partition and seq = d.seq offset 0
        ) as old
        where i.ctid = old.ctid;
        perform monarq.tally_items(p_queue.id, dead => cardinality(p_seqs));
        perform monarq.tally(p_queue.id, 0, dead_letters => cardinality(p_seqs));
    else
        perform monarq.remove_items(p_partition, p_seqs);
    end if;
    perform monarq.tally(p_queue.id, 0, dead => cardinality(p_seqs));
end
$$;

-- Removes items with what belongs to them, but for their attempts, which are a log.
create or replace function monarq.remove_items(p_partition bigint, p_seqs bigint[]) returns void
    language plpgsql
as $$
declare
    v_rows tid[];
    v_ids text[];
begin
    select array_agg(i.ctid), array_agg(i.transaction_id) into v_rows, v_ids
    from unnest(p_seqs) as s (seq)
    cross join lateral (
        select ctid, transaction_id from monarq.items
        where partition_id = p_partition and seq = s.seq for update
    ) as i;
    delete from monarq.items where ctid = any (v_rows);
    perform monarq.forget_ids(p_partition, v_ids);
end
$$;

-- Removes transaction ids of a partition.
create or replace function monarq.forget_ids(p_partition bigint, p_ids text[]) returns void
    language plpgsql
as $$
declare
    v_rows tid[];
begin
    select array_agg(t.ctid) into v_rows
    from unnest(p_ids) as x (id)
    cross join lateral (
        select ctid from monarq.transaction_ids
        where partition_id = p_partition and transaction_id = x.id for update
    ) as t;
    delete from monarq.transaction_ids where ctid = any (v_rows);
end
$$;

-- Returns what is due to a queue (run times, deadlines) and buries what has expired; at most
-- p_limit of both. Answers how many were promoted, expired and buried.
create or replace function monarq.tend_items(
    p_now bigint, p_queue monarq.queues, p_partition bigint, p_limit integer,
    out promoted integer, out expired integer, out buried integer
)
    language plpgsql
as $$
declare
    v_expired tid[];
    v_due tid[];
    v_dead bigint[];
    v_scheduled integer;
begin
    promoted := 0; expired := 0; buried := 0;
    -- By their place in the table: whoever is buried meanwhile is not there any more.
    select array_agg(row order by seq) filter (where state = 'leased'),
        array_agg(seq order by seq) filter (where state = 'leased' and attempts >= max_attempts),
        array_agg(row) filter (where state = 'scheduled')
    into v_expired, v_dead, v_due from (
        select ctid as row, seq, state, attempts, max_attempts from monarq.items
        where partition_id = p_partition and due_at <= p_now
        order by due_at limit p_limit for update skip locked
    ) as due;
    -- Leases that ran out.
    if v_expired is not null then
        expired := cardinality(v_expired);
        insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at, ended_at,
            outcome, consumer, error)
        select queue_id, partition_id, seq, attempts, leased_at, due_at, 'expired', consumer,
            'the lease expired without an answer'
        from monarq.items where ctid = any (v_expired) order by seq;
        perform monarq.tally(p_queue.id, 0, failed => expired);
        perform monarq.tally_items(p_queue.id, leased => -expired);
        if v_dead is not null then
            buried := cardinality(v_dead);
            perform monarq.bury_items(p_now, p_queue, p_partition, v_dead,
                array_fill('the lease expired without an answer'::text, array[buried]));
        end if;
        update monarq.items i set state = 'ready', due_at = null,
            rank = p.last_seq - i.waited - i.priority,
            ended_lease_no = i.lease_no, ended_answered = false,
            lease_no = null, leased_at = null, consumer = null,
            error = 'the lease expired without an answer'
        from monarq.partitions p
        where i.ctid = any (v_expired) and p.id = p_partition;
        perform monarq.tally_items(p_queue.id, ready => expired - buried);
    end if;
    -- Past expireTimeout, while scheduled or ready.
    select array_agg(seq order by seq), count(*) filter (where state = 'scheduled')
    into v_dead, v_scheduled from (
        select seq, state from monarq.items
        where partition_id = p_partition and expires_at <= p_now and state in ('ready', 'scheduled')
        order by expires_at limit p_limit for update skip locked
    ) as old;
    if v_dead is not null then
        buried := buried + cardinality(v_dead);
        perform monarq.tally_items(p_queue.id, scheduled => -v_scheduled,
            ready => v_scheduled - cardinality(v_dead));
        perform monarq.bury_items(p_now, p_queue, p_partition, v_dead,
            array_fill('expired before it was done'::text, array[cardinality(v_dead)]));
    end if;
    -- Run times.
    if v_due is not null then
        update monarq.items i set state = 'ready', due_at = null,
            rank = p.last_seq - i.waited - i.priority
        from monarq.partitions p
        where i.ctid = any (v_due) and p.id = p_partition;
        get diagnostics promoted = row_count;
        perform monarq.tally_items(p_queue.id, scheduled => -promoted, ready => promoted);
    end if;
end
$$;

-- Work queues: items due, pop and ack.

-- Adds one item to a work queue without regard to its maxSize, unless its transaction id is
-- there; the seq, or null.
create or replace function monarq.append_item(
    p_now bigint, p_queue monarq.queues, p_priority integer, p_payload bytea,
    p_transaction_id text, p_trace_id text, p_producer text, p_headers text
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
        headers)
    values (p.id, p.last_seq, p_queue.id, 'ready', p_priority, p.last_seq - p_priority, p.turns,
        case when p_queue.expire_timeout > 0
            then p.last_at + (p_queue.expire_timeout * 1000000)::bigint end,
        p_queue.max_attempts, p_queue.backoff_base, p.last_at, p_payload, p_transaction_id,
        p_trace_id, p_producer, p_headers);
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
                'monarqDeadError', d.error)::text))
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

-- Deals locked items again, where they may be too large: whoever has no room for the next one gets
-- no more. p_turns is whose turn it is, one after the other. Answers to whom each item goes; those
-- behind the last one go to nobody.
create or replace function monarq.deal_again(p_rows tid[], p_turns integer[], p_bytes bigint)
    returns integer[]
    language plpgsql stable
as $$
declare
    v_sizes integer[];
    v_room bigint[] := array_fill(null::bigint, array[(select max(t) from unnest(p_turns) t)]);
    v_turn integer := 0;
    v_who integer;
    v_dealt integer[] := '{}';
begin
    select array_agg(octet_length(i.payload) order by r.place) into v_sizes
    from unnest(p_rows) with ordinality as r (row, place)
    cross join lateral (select payload from monarq.items where ctid = r.row offset 0) as i;
    for n in 1 .. cardinality(p_rows) loop
        loop
            v_turn := v_turn + 1;
            if v_turn > cardinality(p_turns) then
                return v_dealt;
            end if;
            v_who := p_turns[v_turn];
            -- None yet: the first one always has room. Below zero: there was none for one.
            if v_room[v_who] is null or v_room[v_who] >= v_sizes[n] then
                v_room[v_who] := greatest(coalesce(v_room[v_who], p_bytes) - v_sizes[n], 0);
                exit;
            end if;
            v_room[v_who] := -1;
        end loop;
        v_dealt := v_dealt || v_who;
    end loop;
    return v_dealt;
end
$$;

-- q: work queues, sorted; q_requests: how many requests there are for it, q_deal: how many items
-- they want in all. d: the deal, in order of queues: to which request the next item goes; null if
-- there is but one. r: by request, in order of queues. Auto-acked items are done. p_bytes is the
-- room that each answer has for payloads, of which the first needs none.
create or replace function monarq.pop_items(
    p_now bigint, p_bytes bigint, q_id bigint[], q_requests integer[], q_deal integer[],
    d_request integer[], r_lease_us bigint[], r_auto_ack boolean[], r_token text[],
    r_consumer text[]
) returns table (
    request integer, lease_no bigint, lease_until bigint, next_at bigint, queue_id bigint,
    partition_id bigint, seq bigint, payload bytea, transaction_id text, trace_id text,
    producer text, headers text, created_at bigint, attempts integer, priority integer,
    max_attempts integer
)
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_now bigint := monarq.time(p_now);
    q monarq.queues;
    v_partition monarq.partitions;
    v_asked integer := 0;
    v_dealt integer := 0;
    v_rows tid[];
    v_bytes bigint;
    v_deal integer[];
    v_to integer[];
    v_numbers bigint[];
    v_count integer;
    v_done integer;
begin
    for i in 1 .. cardinality(q_id) loop
        q := null;
        select * into q from monarq.queues where id = q_id[i];
        select * into v_partition from monarq.partitions where queue_id = q.id;
        v_deal := coalesce(d_request[v_dealt + 1 : v_dealt + q_deal[i]],
            array_fill(1, array[q_deal[i]]));
        v_dealt := v_dealt + q_deal[i];
        v_asked := v_asked + q_requests[i];
        if q.id is null or q.paused or v_partition.id is null then
            return query
            select d, null::bigint, null::bigint, case when q.id is null then -1::bigint end,
                null::bigint, null::bigint, null::bigint, null::bytea, null::text, null::text,
                null::text, null::text, null::bigint, null::integer, null::integer, null::integer
            from unnest(v_deal) d group by d;
            continue;
        end if;
        perform monarq.tend_items(v_now, q, v_partition.id, 1000);
        select array_agg(x.ctid order by x.rank, x.turn), sum(x.bytes), count(*)
        into v_rows, v_bytes, v_count
        from (
            select ctid, rank, turn, octet_length(payload) as bytes from monarq.items
            where partition_id = v_partition.id and state = 'ready'
            order by rank, turn limit q_deal[i]
            for update skip locked
        ) as x;
        v_to := v_deal[1 : v_count];
        if v_bytes > p_bytes then
            v_to := monarq.deal_again(v_rows, v_deal, p_bytes);
            v_count := cardinality(v_to);
            v_rows := v_rows[1 : v_count];
        end if;
        if v_count > 0 then
            -- Drawn once the items are locked: of two leases of an item the later has more.
            v_numbers := array(
                select nextval('monarq.lease_numbers') from generate_series(1, q_requests[i]));
            v_done := 0;
            if true = any (r_auto_ack) then
                insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at,
                    ended_at, outcome, consumer)
                select it.queue_id, it.partition_id, it.seq, it.attempts + 1, v_now, v_now,
                    'completed', r_consumer[d.request]
                from unnest(v_rows, v_to) with ordinality as d (ctid, request, place)
                cross join lateral (
                    select * from monarq.items where ctid = d.ctid offset 0
                ) as it
                where r_auto_ack[d.request]
                order by d.place;
                get diagnostics v_done = row_count;
            end if;
            -- By their place in the table, which is theirs while they are locked.
            return query
            with leased as (
                update monarq.items it set
                    state = case when r_auto_ack[d.request] then 'done' else 'leased' end,
                    attempts = it.attempts + 1,
                    waited = v_partition.last_seq - (it.rank + it.priority),
                    due_at = case when not r_auto_ack[d.request] then v_now
                        + coalesce(r_lease_us[d.request], (q.lease_time * 1000000)::bigint) end,
                    lease_no = case when not r_auto_ack[d.request]
                        then v_numbers[d.request - v_asked + q_requests[i]] end,
                    lease_token = case when r_auto_ack[d.request] then it.lease_token
                        else r_token[d.request] end,
                    leased_at = case when not r_auto_ack[d.request] then v_now end,
                    consumer = r_consumer[d.request],
                    finished_at = case when r_auto_ack[d.request] then v_now end,
                    error = case when not r_auto_ack[d.request] then it.error end
                from unnest(v_rows, v_to) with ordinality as d (ctid, request, place)
                where it.ctid = d.ctid
                returning d.place, d.request, it.lease_no, it.due_at, it.seq, it.payload,
                    it.transaction_id, it.trace_id, it.producer, it.headers, it.created_at,
                    it.attempts, it.priority, it.max_attempts
            )
            select l.request, l.lease_no, l.due_at, null::bigint, q.id, v_partition.id, l.seq,
                l.payload, l.transaction_id, l.trace_id, l.producer, l.headers, l.created_at,
                l.attempts, l.priority, l.max_attempts
            from leased l order by l.place;
            insert into monarq.counters as c (queue_id, group_id, shard, ready, leased, done,
                completed)
            values (q.id, 0, monarq.shard(), -v_count, v_count - v_done, v_done, v_done)
            on conflict (queue_id, group_id, shard) do update set
                ready = c.ready + excluded.ready, leased = c.leased + excluded.leased,
                done = c.done + excluded.done, completed = c.completed + excluded.completed;
        end if;
        if v_count < q_deal[i] then
            return query
            select d, null::bigint, null::bigint, (
                    select min(due_at) from monarq.items
                    where partition_id = v_partition.id and due_at > v_now),
                q.id, null::bigint, null::bigint, null::bytea, null::text, null::text, null::text,
                null::text, null::bigint, null::integer, null::integer, null::integer
            from unnest(v_deal) d
            where d <> all (v_to) group by d;
        end if;
    end loop;
end
$$;

-- Why a lease does not entitle to an item; null if it does.
create or replace function monarq.item_fault(
    p_now bigint, i monarq.items, p_lease bigint, p_token text
) returns text
    language sql stable
as $$
    select case
        when p_lease is null then
            case when i.lease_no is null or i.due_at <= p_now then 'lease_expired' end
        when i.lease_no = p_lease and i.lease_token = p_token then
            case when i.due_at <= p_now then 'lease_expired' end
        when i.lease_no is null and i.ended_lease_no = p_lease and i.lease_token = p_token then
            case when i.ended_answered then 'already_acked' else 'lease_expired' end
        when monarq.is_live_lease(p_now, p_lease, p_token) then 'lease_foreign'
        when p_lease < greatest(i.lease_no, i.ended_lease_no) then 'lease_taken_over'
        else 'lease_unknown' end
$$;

-- Locks items, in order.
create or replace function monarq.lock_items(p_partitions bigint[], p_seqs bigint[]) returns void
    language plpgsql
as $$
begin
    perform 1 from (
        select * from unnest(p_partitions, p_seqs) as a (partition_id, seq)
        order by partition_id, seq
    ) as a
    cross join lateral (
        select from monarq.items it
        where it.partition_id = a.partition_id and it.seq = a.seq for update
    ) as it;
end
$$;

-- a: the acks, each of one item; in all but a_seq a single entry stands for all, and what none has
-- is null (a_jitter goes with failures). Statuses as in ack_messages. A fault or '' for each, and
-- whether the item died; null if all were completed.
create or replace function monarq.ack_items(
    p_now bigint,
    a_seq bigint[], a_id text[], a_partition bigint[], a_lease bigint[], a_token text[],
    a_status integer[], a_error text[], a_retry_at bigint[], a_result bytea[], a_jitter float8[],
    out faults text[], out died boolean[]
)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_all integer[] := array[cardinality(a_seq)];
    v_seqs bigint[] := a_seq;
    v_is_simple boolean := cardinality(a_status) = 1 and cardinality(a_lease) = 1
        and cardinality(a_token) = 1;
    i monarq.items;
    q monarq.queues;
    v_fault text;
    v_dead boolean;
    v_state text;
    v_at bigint;
    v_last bigint;
    v_done integer[];
begin
    if cardinality(a_seq) > 1 then
        a_partition := case cardinality(a_partition) when 1 then array_fill(a_partition[1], v_all)
            else a_partition end;
        a_lease := case cardinality(a_lease) when 1 then array_fill(a_lease[1], v_all)
            else a_lease end;
        a_token := case cardinality(a_token) when 1 then array_fill(a_token[1], v_all)
            else a_token end;
        a_status := case cardinality(a_status) when 1 then array_fill(a_status[1], v_all)
            else a_status end;
    end if;
    if a_id is not null then
        select array_agg(coalesce(a.seq, (
                select t.seq from monarq.transaction_ids t
                where t.partition_id = a.partition_id and t.transaction_id = a.id
            )) order by a.place) into v_seqs
        from unnest(a_partition, a_seq, a_id) with ordinality as a (partition_id, seq, id, place);
    end if;
    -- Retries take turns, which are counted in the partition; partitions are locked before items.
    if 2 = any (a_status) then
        perform 1 from monarq.partitions where id in (
                select p from unnest(a_partition, a_status) as a (p, status) where a.status = 2)
            order by id for no key update;
    end if;
    if not v_is_simple then
        perform monarq.lock_items(a_partition, v_seqs);
        -- Different answers to one item are given one after the other, the long way.
        v_is_simple := (select count(distinct (a.partition_id, a.seq)) = count(*)
            from unnest(a_partition, v_seqs) as a (partition_id, seq));
    end if;
    -- The short way: completed by whoever has the lease. Sorted, since each is locked as it comes.
    if v_is_simple and 0 = any (a_status) then
        with ended as (
            update monarq.items it set state = 'done', finished_at = v_now, due_at = null,
                ended_lease_no = it.lease_no, ended_answered = true, lease_no = null, error = null
            from (
                select held.row, a.place, a.error, a.result
                from unnest(a_partition, v_seqs, a_lease, a_token, a_status, a_error,
                        a_result) with ordinality
                    as a (partition_id, seq, lease_no, token, status, error, result, place)
                -- By their key, then their place: the index of leases would seem better while few
                -- are known, and be read from end to end. One that changes meanwhile is left.
                cross join lateral (
                    select ctid as row, lease_no, lease_token, due_at from monarq.items
                    where partition_id = a.partition_id and seq = a.seq offset 0
                ) as held
                where a.status = 0 and held.lease_no = a.lease_no and held.lease_token = a.token
                    and held.due_at > v_now
                order by a.partition_id, a.seq
            ) as a
            where it.ctid = a.row
            returning it.queue_id, it.partition_id, it.seq, it.attempts, it.leased_at, it.consumer,
                a.place, a.error, a.result
        ), logged as (
            insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at,
                ended_at, outcome, consumer, error, result)
            select queue_id, partition_id, seq, attempts, leased_at, v_now, 'completed', consumer,
                error, result
            from ended order by place
        ), counted as (
            insert into monarq.counters as c (queue_id, group_id, shard, leased, done, completed)
            select queue_id, 0, monarq.shard(), -count(*), count(*), count(*)
            from ended group by queue_id order by queue_id
            on conflict (queue_id, group_id, shard) do update set
                leased = c.leased + excluded.leased, done = c.done + excluded.done,
                completed = c.completed + excluded.completed
        )
        select array_agg(place) into v_done from ended;
        if cardinality(v_done) = cardinality(a_seq) then
            return;
        end if;
    end if;

    perform monarq.lock_items(a_partition, v_seqs);
    faults := array_fill(''::text, v_all);
    died := array_fill(false, v_all);
    for n in 1 .. cardinality(a_seq) loop
        continue when n = any (v_done);
        i := null;
        select * into i from monarq.items where partition_id = a_partition[n] and seq = v_seqs[n];
        v_fault := case when i.seq is null then 'not_found'
            else monarq.item_fault(v_now, i, a_lease[n], a_token[n]) end;
        if v_fault is not null then
            faults[n] := v_fault;
            continue;
        end if;
        select * into q from monarq.queues where id = i.queue_id;
        select last_seq into v_last from monarq.partitions where id = i.partition_id;
        v_dead := a_status[n] = 4 or (a_status[n] in (1, 2) and i.attempts >= i.max_attempts);
        died[n] := v_dead;
        if a_status[n] <> 3 then
            insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at, ended_at,
                outcome, consumer, error, result)
            values (i.queue_id, i.partition_id, i.seq, i.attempts, i.leased_at, v_now,
                (array['completed', 'failed', 'retry', '', 'dead'])[a_status[n] + 1], i.consumer,
                a_error[n], a_result[n]);
        end if;
        if a_status[n] in (1, 2) then
            perform monarq.tally(q.id, 0, failed => 1);
        end if;
        perform monarq.tally_items(q.id, leased => -1);
        if v_dead then
            perform monarq.bury_items(v_now, q, i.partition_id, array[i.seq],
                array[coalesce(a_error[n], i.error, case a_status[n] when 4
                    then 'given up by its consumer' else 'failed without an error' end)]);
            continue;
        end if;
        v_at := case a_status[n]
            when 1 then coalesce(a_retry_at[n], v_now + monarq.backoff(
                i.backoff_base, i.attempts, q.backoff_cap, q.backoff_jitter * a_jitter[n]))
            when 2 then a_retry_at[n] end;
        v_state := case when a_status[n] = 0 then 'done' when v_at > v_now then 'scheduled'
            else 'ready' end;
        if a_status[n] = 2 then
            update monarq.partitions set turns = turns + 1 where id = i.partition_id
                returning turns into i.turn;
            i.waited := 0;
        end if;
        update monarq.items set state = v_state, waited = i.waited, turn = i.turn,
            rank = v_last - i.waited - priority,
            due_at = case when v_state = 'scheduled' then v_at end,
            finished_at = case when v_state = 'done' then v_now end,
            attempts = case when a_status[n] = 3 then i.attempts - 1 else i.attempts end,
            error = case when a_status[n] in (1, 2) then coalesce(a_error[n], i.error)
                when a_status[n] = 0 then null else i.error end,
            ended_lease_no = lease_no, ended_answered = true, lease_no = null,
            consumer = case when v_state = 'done' then consumer end
            where partition_id = i.partition_id and seq = i.seq;
        perform monarq.tally_items(q.id, scheduled => (v_state = 'scheduled')::integer,
            ready => (v_state = 'ready')::integer, done => (v_state = 'done')::integer);
        if v_state = 'done' then
            perform monarq.tally(q.id, 0, completed => 1);
        end if;
    end loop;
end
$$;

-- base ^ attempts seconds, at most p_cap, and p_jitter (0 to 1) of it on top; in microseconds.
create or replace function monarq.backoff(
    p_base float8, p_attempts integer, p_cap float8, p_jitter float8
) returns bigint
    language sql immutable parallel safe
as $$
    -- By logarithms first: the power itself may be too large or too small for a number.
    select round(1000000 * (1 + p_jitter) * case
        when p_base <= 0 then 0
        when p_attempts * ln(p_base) < -30 then 0
        when p_cap <= 0 or p_attempts * ln(p_base) > ln(p_cap) then p_cap
        else power(p_base, p_attempts) end)::bigint
$$;

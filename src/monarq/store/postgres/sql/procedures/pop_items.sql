-- Pop from work queues: items are dealt to the requests, one at a time.

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
    max_attempts integer, is_command boolean
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
    v_until bigint;
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
                null::text, null::text, null::bigint, null::integer, null::integer, null::integer,
                null::boolean
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
            if d_request is null and not r_auto_ack[1] then
                -- All go to one who will answer: no look for each at what it is to get, which is
                -- a tenth of what a claim costs.
                v_until := v_now + coalesce(r_lease_us[1], (q.lease_time * 1000000)::bigint);
                return query
                with leased as (
                    update monarq.items it set
                        state = 'leased', attempts = it.attempts + 1,
                        waited = v_partition.last_seq - (it.rank + it.priority),
                        due_at = v_until, lease_no = v_numbers[1], lease_token = r_token[1],
                        leased_at = v_now, consumer = r_consumer[1], finished_at = null
                    where it.ctid = any (v_rows)
                    returning it.rank, it.turn, it.lease_no, it.due_at, it.seq, it.payload,
                        it.transaction_id, it.trace_id, it.producer, it.headers, it.created_at,
                        it.attempts, it.priority, it.max_attempts, it.is_command
                )
                select 1, l.lease_no, l.due_at, null::bigint, q.id, v_partition.id, l.seq,
                    l.payload, l.transaction_id, l.trace_id, l.producer, l.headers, l.created_at,
                    l.attempts, l.priority, l.max_attempts, l.is_command
                from leased l order by l.rank, l.turn;
            else
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
                        it.attempts, it.priority, it.max_attempts, it.is_command
                )
                select l.request, l.lease_no, l.due_at, null::bigint, q.id, v_partition.id, l.seq,
                    l.payload, l.transaction_id, l.trace_id, l.producer, l.headers, l.created_at,
                    l.attempts, l.priority, l.max_attempts, l.is_command
                from leased l order by l.place;
            end if;
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
                null::text, null::bigint, null::integer, null::integer, null::integer,
                null::boolean
            from unnest(v_deal) d
            where d <> all (v_to) group by d;
        end if;
    end loop;
end
$$;

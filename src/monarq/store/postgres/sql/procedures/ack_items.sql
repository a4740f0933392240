-- Acks of items.

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
    v_is_simple boolean := cardinality(a_status) = 1;
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
    -- The short way: completed by whoever has the lease. Sorted, since each is locked as it comes;
    -- and of two answers to one item the first counts, the other goes the long way.
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
                order by a.partition_id, a.seq, a.place
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
            when 1 then coalesce(a_retry_at[n], v_now + monarq.retry_delay(i.attempts, null,
                i.backoff_base, q.backoff_cap, q.backoff_jitter * a_jitter[n]))
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

-- Acks of messages of ordered queues.

-- Answers some messages of one locked cursor, one after the other. Statuses: 0 completed,
-- 1 failed, 2 retry, 3 release, 4 dead. Answers a fault or '' for each, whether it died, and
-- whether the lease ended with it.
create or replace function monarq.answer(
    p_now bigint, p_queue monarq.queues, c monarq.cursors, p_lease bigint, p_token text,
    a_seq bigint[], a_status integer[], a_error text[], a_retry_at bigint[],
    out faults text[], out died boolean[], out released boolean[]
)
    language plpgsql
as $$
declare
    v_leased monarq.cursors := c;
    u monarq.unresolved;
    v_seq bigint;
    v_status integer;
    v_attempts integer;
    v_first bigint;
    v_last bigint;
    v_counts integer[] := array[0, 0, 0, 0];
    v_failed integer := 0;
    v_last_error text;
    v_left integer := c.lease_left;
    v_fault text;
    p monarq.partitions;
begin
    select * into p from monarq.partitions where id = c.partition_id;
    faults := array_fill(''::text, array[cardinality(a_seq)]);
    died := array_fill(false, array[cardinality(a_seq)]);
    released := array_fill(false, array[cardinality(a_seq)]);
    for i in 1 .. cardinality(a_seq) loop
        v_seq := a_seq[i];
        v_status := a_status[i];
        v_fault := monarq.lease_fault(p_now, c, p_lease, p_token);
        if v_fault is null or v_fault = 'lease_taken_over' then
            u := null;
            select * into u from monarq.unresolved
                where partition_id = c.partition_id and group_id = c.group_id and seq = v_seq;
        end if;
        if v_fault is null then
            v_fault := case
                when v_seq is null or v_seq < p.first_seq or v_seq > p.last_seq then 'not_found'
                when v_seq > c.lease_to then
                    case when p_lease is null then 'lease_expired' else 'not_in_lease' end
                when v_seq <= c.position or u.acked or u.answered_lease_no = c.lease_no
                    then 'already_acked' end;
        elsif v_fault = 'lease_taken_over' and v_seq between p.first_seq and p.last_seq
            and (case when v_seq <= c.position or u.acked
                then p_lease > c.lost_lease_no
                    or (p_lease > c.lost_before_no and p_lease < c.lost_lease_no)
                else u.answered_lease_no = p_lease end)
        then
            -- All that was under it has its answer, or this one has, and it was the last.
            v_fault := 'answered_earlier';
        end if;
        if v_fault is not null then
            faults[i] := v_fault;
            continue;
        end if;
        v_attempts := coalesce(u.attempts, 0) + case when v_status in (1, 2, 4) then 1 else 0 end;
        v_failed := v_failed + case when v_status in (1, 2) then 1 else 0 end;
        died[i] := v_status = 4 or (v_status in (1, 2) and p_queue.dlq_after_max_retries
            and v_attempts > p_queue.retry_limit);
        insert into monarq.unresolved as x (partition_id, group_id, seq, attempts, acked,
            answered_lease_no, retry_at, error)
        values (c.partition_id, c.group_id, v_seq, v_attempts, v_status = 0 or died[i],
            c.lease_no, case when v_status in (1, 2)
                then coalesce(a_retry_at[i], p_now + monarq.retry_delay(
                    v_attempts, p_queue.retry_delay, null, null, null)) end, a_error[i])
        on conflict (partition_id, group_id, seq) do update set
            attempts = excluded.attempts, acked = excluded.acked,
            answered_lease_no = excluded.answered_lease_no, retry_at = excluded.retry_at,
            error = coalesce(excluded.error, x.error);
        if died[i] then
            perform monarq.bury(p_now, p_queue, c.partition_id, c.group_id, array[v_seq],
                array[v_attempts], array[coalesce(a_error[i], u.error, case v_status
                    when 4 then 'given up by its consumer' else 'failed without an error' end)]);
            v_counts[4] := v_counts[4] + 1;
        else
            v_counts[case v_status when 0 then 1 when 3 then 3 else 2 end] :=
                v_counts[case v_status when 0 then 1 when 3 then 3 else 2 end] + 1;
        end if;
        v_first := least(v_first, v_seq);
        v_last := greatest(v_last, v_seq);
        v_last_error := coalesce(a_error[i], v_last_error);
        v_left := v_left - 1;
        if v_left = 0 then
            released[i] := true;
            c := monarq.advance(p_queue.id, c.partition_id, c.group_id);
            perform monarq.end_lease(c.partition_id, c.group_id, c.position, p_now, true);
            select * into c from monarq.cursors
                where partition_id = c.partition_id and group_id = c.group_id;
        end if;
    end loop;
    if v_first is null then
        return;
    end if;
    if v_left > 0 then
        update monarq.cursors set lease_left = v_left, has_unresolved = true
            where partition_id = c.partition_id and group_id = c.group_id;
        perform monarq.advance(p_queue.id, c.partition_id, c.group_id);
    end if;
    insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no, leased_at,
        ended_at, first_seq, last_seq, completed, failed, released, dead, error)
    values (p_queue.id, c.partition_id, c.group_id, v_leased.consumer, v_leased.lease_no,
        v_leased.leased_at, p_now, v_first, v_last, v_counts[1], v_counts[2], v_counts[3],
        v_counts[4], v_last_error);
    perform monarq.tally(p_queue.id, c.group_id, completed => v_counts[1], failed => v_failed);
end
$$;

-- g: one entry a (partition, group, lease), sorted by partition and group; a: the acks, a_of says
-- to which entry each belongs, in order of entries. a_seq or a_id names the message; both null:
-- all that have no answer yet; a_to as well: all from a_seq to it.
create or replace function monarq.ack_messages(
    p_now bigint,
    g_partition bigint[], g_group text[], g_lease bigint[], g_token text[],
    a_of integer[], a_seq bigint[], a_to bigint[], a_id text[], a_status integer[],
    a_error text[], a_retry_at bigint[]
) returns table (entry integer, faults text[], died integer[], counts integer[], released boolean[])
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_now bigint := monarq.time(p_now);
    v_seqs bigint[] := a_seq;
    v_queues bigint[];
    v_groups bigint[];
    v_asked record;
    v_short record;
    v_entry record;
    c monarq.cursors;
    q monarq.queues;
    v_answer record;
    v_all bigint[];
    v_from integer;
    v_to integer;
begin
    if a_id is null and cardinality(a_of) = 1 and a_status[1] = 0 and a_seq[1] is not null then
        v_short := monarq.complete_lease(v_now, g_lease[1], g_token[1], g_partition[1],
            g_group[1], a_seq[1], coalesce(a_to[1], a_seq[1]));
        if v_short.partition_id is not null then
            entry := 1; counts := array[v_short.count]; released := array[true];
            return next;
            return;
        end if;
    end if;
    if a_id is not null then
        select array_agg(coalesce(a.seq, (
                select t.seq from monarq.transaction_ids t
                where t.partition_id = g_partition[a.entry] and t.transaction_id = a.id
            )) order by a.place) into v_seqs
        from unnest(a_of, a_seq, a_id) with ordinality as a (entry, seq, id, place);
    end if;
    select array_agg(n.queue_id order by e.place), array_agg(n.group_id order by e.place)
    into v_queues, v_groups
    from unnest(g_partition, g_group) with ordinality as e (partition_id, group_name, place)
    left join lateral (
        select p.queue_id, (select g.id from monarq.groups g
            where g.queue_id = p.queue_id and g.name = e.group_name) as group_id
        from monarq.partitions p where p.id = e.partition_id offset 0
    ) as n on true;

    -- What each entry asks for, in order of entries.
    select array_agg(a.status order by a.entry) as statuses,
        array_agg(a.answers order by a.entry) as answers,
        array_agg(a.messages order by a.entry) as messages,
        array_agg(a.first_seq order by a.entry) as firsts,
        array_agg(a.last_seq order by a.entry) as lasts,
        array_agg(a.whole order by a.entry) as wholes
    into v_asked
    from (
        select a.entry, max(a.status) as status,
            -- None if one names a message that is not there: it is then judged by itself.
            case when bool_and(a.seq is not null)
                then sum(coalesce(a.upto, a.seq) - a.seq + 1) end as answers,
            case when count(*) > 1 then count(distinct a.seq)
                else sum(coalesce(a.upto, a.seq) - a.seq + 1) end as messages,
            min(a.seq) as first_seq, max(coalesce(a.upto, a.seq)) as last_seq,
            -- A single one that names nothing means all.
            count(*) = 1 and bool_and(a.seq is null and a.id is null) as whole
        from unnest(a_of, v_seqs, a_to, a_id, a_status) as a (entry, seq, upto, id, status)
        group by a.entry
    ) as a;

    -- Locks all cursors, and finds those that go the short way: what is next under the lease is
    -- completed, and nothing is out of line.
    select array_agg(s.place::integer) as places, array_agg(s.ctid) as rows,
        array_agg(s.queue_id) as queues, array_agg(s.partition_id) as partitions,
        array_agg(s.position + 1) as firsts, array_agg(s.last_seq) as lasts,
        array_agg(s.lease_no) as leases, array_agg(s.leased_at) as times,
        array_agg(s.lease_to) as ends, array_agg(s.consumer) as consumers
    into v_short
    from (
        select e.place, e.queue_id, c.*, case when e.whole then c.lease_to else e.last_seq end
                as last_seq,
            e.alone and c.lease_no = e.lease_no and c.lease_token = e.token
                and c.lease_until > v_now and not c.has_unresolved and e.status = 0
                and (e.whole or (e.answers = e.messages and e.first_seq = c.position + 1
                    and e.last_seq = c.position + e.answers and e.last_seq <= c.lease_to))
                as is_short
        from (
            -- Two entries of one cursor answer one after the other, the long way.
            select *, count(*) over (partition by partition_id, group_id) = 1 as alone
            from unnest(g_partition, v_queues, v_groups, g_lease, g_token, v_asked.statuses,
                    v_asked.answers, v_asked.messages, v_asked.firsts, v_asked.lasts,
                    v_asked.wholes) with ordinality
                as e (partition_id, queue_id, group_id, lease_no, token, status, answers, messages,
                    first_seq, last_seq, whole, place)
            order by partition_id, group_id
        ) as e
        cross join lateral (
            select c.ctid, c.* from monarq.cursors c
            where c.partition_id = e.partition_id and c.group_id = e.group_id for update
        ) as c
        -- Keeps what is asked of the locked rows from being asked before they are locked.
        offset 0
    ) as s
    where s.is_short;

    if v_short.places is not null then
        -- Those that seem drained wait for pushes under way (see is_drained).
        perform 1 from (
                select * from unnest(v_short.partitions, v_short.lasts) as s (id, last_seq)
                order by id
            ) as s
            cross join lateral (
                select from monarq.partitions p
                where p.id = s.id and p.last_seq <= s.last_seq for share
            ) as p;
        -- By their place in the table, which is theirs while they are locked.
        return query
        with answered as (
            update monarq.cursors c set
                position = s.last_seq,
                lease_left = c.lease_to - s.last_seq,
                ended_lease_no = case when s.ends then c.lease_no else c.ended_lease_no end,
                ended_answered = s.ends or c.ended_answered,
                lease_no = case when not s.ends then c.lease_no end,
                lease_until = case when not s.ends then c.lease_until end,
                leased_at = case when not s.ends then c.leased_at end,
                lease_to = case when not s.ends then c.lease_to end,
                consumer = case when not s.ends then c.consumer end,
                available_at = case when not s.ends then c.available_at
                    when s.partition_last > s.last_seq then v_now end
            from (
                select n.*, n.last_seq = n.lease_to as ends, p.last_seq as partition_last
                from unnest(v_short.places, v_short.rows, v_short.queues, v_short.partitions,
                        v_short.firsts, v_short.lasts, v_short.leases, v_short.times,
                        v_short.ends, v_short.consumers)
                    as n (place, ctid, queue_id, partition_id, first_seq, last_seq, lease_no,
                        leased_at, lease_to, consumer)
                cross join lateral (
                    select last_seq from monarq.partitions where id = n.partition_id offset 0
                ) as p
            ) as s
            where c.ctid = s.ctid
            returning s.place, s.queue_id, s.partition_id, c.group_id, s.consumer, s.lease_no,
                s.leased_at, s.first_seq, s.last_seq, s.ends
        ), logged as (
            insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no,
                leased_at, ended_at, first_seq, last_seq, completed)
            select queue_id, partition_id, group_id, consumer, lease_no, leased_at, v_now,
                first_seq, last_seq, last_seq - first_seq + 1
            from answered
        ), counted as (
            insert into monarq.counters as c (queue_id, group_id, shard, position, completed)
            select queue_id, group_id, monarq.shard(), sum(last_seq - first_seq + 1),
                sum(last_seq - first_seq + 1)
            from answered group by queue_id, group_id order by queue_id, group_id
            on conflict (queue_id, group_id, shard) do update set
                position = c.position + excluded.position,
                completed = c.completed + excluded.completed
        )
        select a.place, null::text[], null::integer[],
            array[(a.last_seq - a.first_seq + 1)::integer], array[a.ends]
        from answered a;
        if cardinality(v_short.places) = cardinality(g_partition) then
            return;
        end if;
    end if;

    for v_entry in
        select e.place::integer as place, e.partition_id, e.group_name, e.lease_no, e.token,
            array_agg(one.seq order by a.place, one.seq) as seqs,
            array_agg(a.status order by a.place, one.seq) as statuses,
            array_agg(a.error order by a.place, one.seq) as errors,
            array_agg(a.retry_at order by a.place, one.seq) as retries,
            array_agg(a.seq is null and a_id[a.place] is null order by a.place, one.seq) as wholes
        from unnest(g_partition, g_group, g_lease, g_token) with ordinality
            as e (partition_id, group_name, lease_no, token, place)
        join unnest(a_of, a_seq, a_status, a_error, a_retry_at) with ordinality
            as a (entry, seq, status, error, retry_at, place) on a.entry = e.place
        cross join lateral (
            select v_seqs[a.place] as seq where a_to[a.place] is null
            union all
            select s from generate_series(a.seq, a_to[a.place]) s
        ) as one
        where v_short.places is null or e.place <> all (v_short.places)
        group by 1, 2, 3, 4, 5 order by 1
    loop
        select mq.* into q from monarq.queues mq join monarq.partitions p on p.queue_id = mq.id
            where p.id = v_entry.partition_id;
        entry := v_entry.place;
        faults := null; died := null; counts := null; released := null;
        v_from := 1;
        while v_from <= cardinality(v_entry.seqs) loop
            c := null;
            select mc.* into c from monarq.cursors mc
                where mc.partition_id = v_entry.partition_id
                    and mc.group_id = v_groups[v_entry.place];
            if c.partition_id is null then
                select e.lease_no, e.lease_token, e.answered
                into c.ended_lease_no, c.lease_token, c.ended_answered from monarq.ended_leases e
                where e.partition_id = v_entry.partition_id and e.group_name = v_entry.group_name;
                faults := faults || case when q.id is null then 'not_found'
                    else monarq.lease_fault(v_now, c, v_entry.lease_no, v_entry.token) end;
                died := died || 0; counts := counts || 0; released := released || false;
            elsif v_entry.wholes[v_from] then
                select array_agg(s order by s) into v_all
                from generate_series(c.position + 1, c.lease_to) s
                where not exists (
                    select from monarq.unresolved u
                    where u.partition_id = c.partition_id and u.group_id = c.group_id
                        and u.seq = s and (u.acked or u.answered_lease_no = c.lease_no));
                -- Nothing left, or another lease: one question gets the fault.
                v_all := coalesce(v_all, array[c.position + 1]);
                v_answer := monarq.answer(v_now, q, c, v_entry.lease_no, v_entry.token, v_all,
                    array_fill(v_entry.statuses[v_from], array[cardinality(v_all)]),
                    array_fill(v_entry.errors[v_from], array[cardinality(v_all)]),
                    array_fill(v_entry.retries[v_from], array[cardinality(v_all)]));
                faults := faults || v_answer.faults[1];
                died := died || (select count(*)::integer from unnest(v_answer.died) d where d);
                counts := counts || cardinality(v_all);
                released := released || (true = any (v_answer.released));
            else
                -- As many at once as name a message.
                v_to := v_from;
                while v_to < cardinality(v_entry.seqs) and not v_entry.wholes[v_to + 1] loop
                    v_to := v_to + 1;
                end loop;
                v_answer := monarq.answer(v_now, q, c, v_entry.lease_no, v_entry.token,
                    v_entry.seqs[v_from : v_to], v_entry.statuses[v_from : v_to],
                    v_entry.errors[v_from : v_to], v_entry.retries[v_from : v_to]);
                faults := faults || v_answer.faults;
                died := died || v_answer.died::integer[];
                counts := counts || array_fill(1, array[v_to - v_from + 1]);
                released := released || v_answer.released;
                v_from := v_to;
            end if;
            v_from := v_from + 1;
        end loop;
        return next;
    end loop;
end
$$;

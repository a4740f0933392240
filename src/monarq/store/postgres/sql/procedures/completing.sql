-- The short ways of an ack: what is next under a lease is completed, and nothing is out of line.

-- Completes, of these leases, what is under them in line: nothing remembered. Answers what it did,
-- and whether that was all of it; the rest is as it was, but locked. Of a lease that is asked for
-- twice, it is the first that is answered. A single status is good for all of them. With
-- p_partitions, of each lease only what is next in this partition, for this group: its messages from
-- p_firsts to p_lasts.
create or replace function monarq.complete_leases(
    p_now bigint, p_leases bigint[], p_tokens text[], p_statuses integer[],
    p_partitions bigint[], p_groups text[], p_firsts bigint[], p_lasts bigint[],
    out places integer[], out partitions bigint[], out counts integer[], out ends boolean[],
    out is_all boolean
)
    language plpgsql
as $$
begin
    with locked as materialized (
        select e.place, c.*, coalesce(e.last_seq, c.lease_to) as upto,
            coalesce(e.status, p_statuses[1]) = 0 and c.lease_no = e.lease_no
                and c.lease_token = e.token and c.lease_until > p_now and not c.has_unresolved
                and (e.asked is null or (e.first_seq = c.position + 1 and e.last_seq <= c.lease_to
                    and e.group_name = (
                        select g.name from monarq.groups g where g.id = c.group_id)))
                as is_short
        from (
            select a.*, u.*
            from unnest(p_leases, p_tokens, p_statuses, p_partitions, p_groups, p_firsts, p_lasts)
                with ordinality as a (lease_no, token, status, asked, group_name, first_seq,
                    last_seq, place)
            cross join lateral (
                select partition_id, group_id from monarq.cursors
                where lease_no = a.lease_no and lease_token = a.token
                    and (a.asked is null or partition_id = a.asked) offset 0
            ) as u
            order by u.partition_id, u.group_id, a.place
        ) as e
        cross join lateral (
            select ctid as row, partition_id, group_id, position, lease_no, lease_token, lease_until,
                leased_at, lease_to, consumer, has_unresolved
            from monarq.cursors
            where partition_id = e.partition_id and group_id = e.group_id for update
        ) as c
    ), answered as (
        -- By their place in the table, which is theirs while they are locked. One that changed
        -- before it was locked is not there as it was seen, and is left.
        update monarq.cursors c set
            position = s.upto, lease_left = c.lease_to - s.upto,
            ended_lease_no = case when s.is_end then c.lease_no else c.ended_lease_no end,
            ended_answered = s.is_end or c.ended_answered,
            lease_no = case when not s.is_end then c.lease_no end,
            lease_until = case when not s.is_end then c.lease_until end,
            leased_at = case when not s.is_end then c.leased_at end,
            lease_to = case when not s.is_end then c.lease_to end,
            consumer = case when not s.is_end then c.consumer end,
            available_at = case when not s.is_end then c.available_at
                when s.is_drained is null then p_now end
        from (
            select l.*, l.upto = l.lease_to as is_end, p.queue_id, d.is_drained
            from locked l
            cross join lateral (
                select queue_id, last_seq from monarq.partitions where id = l.partition_id offset 0
            ) as p
            -- Those that seem drained wait for pushes under way (see is_drained).
            left join lateral (
                select true as is_drained from monarq.partitions
                where p.last_seq <= l.upto and id = l.partition_id and last_seq <= l.upto
                for share
            ) as d on true
            where l.is_short
        ) as s
        where c.ctid = s.row
        returning s.place::integer, s.queue_id, s.partition_id, s.group_id, s.consumer, s.lease_no,
            s.leased_at, s.position + 1 as first_seq, s.upto as last_seq,
            (s.upto - s.position)::integer as count, s.is_end
    ), logged as (
        insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no,
            leased_at, ended_at, first_seq, last_seq, completed)
        select queue_id, partition_id, group_id, consumer, lease_no, leased_at, p_now, first_seq,
            last_seq, count
        from answered
    ), counted as (
        insert into monarq.counters as c (queue_id, group_id, shard, position, completed)
        select queue_id, group_id, monarq.shard(), sum(count), sum(count)
        from answered group by queue_id, group_id order by queue_id, group_id
        on conflict (queue_id, group_id, shard) do update set
            position = c.position + excluded.position,
            completed = c.completed + excluded.completed
    )
    select array_agg(a.place), array_agg(a.partition_id), array_agg(a.count), array_agg(a.is_end),
        count(*) = (select count(*) from locked)
            and count(distinct a.place) = cardinality(p_leases)
    into places, partitions, counts, ends, is_all from answered a;
end
$$;

-- Completes what is under one lease, if that is one partition, alone and in line; it is the same as
-- complete_leases, step by step: for one, that is much less to set up. With p_partition, only if it
-- is this one's and group's, and these are its messages. No partition: it is not.
create or replace function monarq.complete_lease(
    p_now bigint, p_lease bigint, p_token text, p_partition bigint, p_group text, p_first bigint,
    p_last bigint, out partition_id bigint, out count integer
)
    language plpgsql
as $$
#variable_conflict use_column
declare
    c record;
    v_queue bigint;
    v_last bigint;
begin
    select k.ctid, k.partition_id, k.group_id, k.position, k.lease_to, k.leased_at, k.consumer,
        k.lease_until > p_now and not k.has_unresolved and (p_partition is null or (
            k.partition_id = p_partition and k.position + 1 = p_first and k.lease_to = p_last))
            as is_short
    into c from monarq.cursors k
    where k.lease_no = p_lease and k.lease_token = p_token
    order by k.partition_id, k.group_id limit 1 for update;
    if c.is_short is not true or exists (
        select from monarq.cursors k
        where k.lease_no = p_lease and (k.partition_id, k.group_id) <> (c.partition_id, c.group_id)
    ) or (p_partition is not null and not exists (
        select from monarq.groups g where g.id = c.group_id and g.name = p_group)) then
        return;
    end if;
    partition_id := c.partition_id;
    count := c.lease_to - c.position;
    select p.queue_id, p.last_seq into v_queue, v_last from monarq.partitions p
        where p.id = c.partition_id;
    if v_last <= c.lease_to then
        -- One that seems drained waits for pushes under way (see is_drained).
        select p.last_seq into v_last from monarq.partitions p
            where p.id = c.partition_id for share;
    end if;
    -- By its place in the table, which is its own while it is locked.
    update monarq.cursors set position = c.lease_to, lease_left = 0,
        ended_lease_no = p_lease, ended_answered = true, lease_no = null, lease_until = null,
        leased_at = null, lease_to = null, consumer = null,
        available_at = case when v_last > c.lease_to then p_now end
        where ctid = c.ctid;
    insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no, leased_at,
        ended_at, first_seq, last_seq, completed)
    values (v_queue, c.partition_id, c.group_id, c.consumer, p_lease, c.leased_at, p_now,
        c.position + 1, c.lease_to, complete_lease.count);
    insert into monarq.counters as k (queue_id, group_id, shard, position, completed)
    values (v_queue, c.group_id, monarq.shard(), complete_lease.count, complete_lease.count)
    on conflict (queue_id, group_id, shard) do update set
        position = k.position + excluded.position, completed = k.completed + excluded.completed;
end
$$;

-- Completes of each lease its messages from p_firsts to p_lasts in one partition, for one group; no
-- two of the same partition and group. Answers as ack_messages does.
create or replace function monarq.complete_runs(
    p_now bigint, p_partitions bigint[], p_groups text[], p_leases bigint[], p_tokens text[],
    p_firsts bigint[], p_lasts bigint[]
) returns table (entry integer, faults text[], died integer[], counts integer[], released boolean[])
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_now bigint := monarq.time(p_now);
    v_one record;
    v_done record;
    v_rest record;
begin
    if cardinality(p_leases) = 1 then
        v_one := monarq.complete_lease(v_now, p_leases[1], p_tokens[1], p_partitions[1],
            p_groups[1], p_firsts[1], p_lasts[1]);
        if v_one.partition_id is not null then
            entry := 1; counts := array[v_one.count]; released := array[true];
            return next;
            return;
        end if;
    end if;
    v_done := monarq.complete_leases(v_now, p_leases, p_tokens, array[0], p_partitions, p_groups,
        p_firsts, p_lasts);
    return query
    select d.place, null::text[], null::integer[], array[d.count], array[d.is_end]
    from unnest(v_done.places, v_done.counts, v_done.ends) as d (place, count, is_end);
    if v_done.is_all then
        return;
    end if;
    select array_agg(r.place::integer) as places, array_agg(r.partition_id) as partitions,
        array_agg(r.group_name) as groups, array_agg(r.lease_no) as leases,
        array_agg(r.token) as tokens, array_agg(r.number::integer) as numbers,
        array_agg(r.first_seq) as firsts, array_agg(r.last_seq) as lasts,
        array_agg(0) as statuses, array_agg(null::text) as errors,
        array_agg(null::bigint) as retries
    into v_rest
    from (
        select r.*, row_number() over (order by r.place) as number
        from unnest(p_partitions, p_groups, p_leases, p_tokens, p_firsts, p_lasts) with ordinality
            as r (partition_id, group_name, lease_no, token, first_seq, last_seq, place)
        where v_done.places is null or r.place <> all (v_done.places)
        order by r.place
    ) as r;
    return query
    select v_rest.places[a.entry], a.faults, a.died, a.counts, a.released
    from monarq.ack_messages(v_now, v_rest.partitions, v_rest.groups, v_rest.leases, v_rest.tokens,
        v_rest.numbers, v_rest.firsts, v_rest.lasts, null, v_rest.statuses, v_rest.errors,
        v_rest.retries) as a;
end
$$;

-- Acks, and the pops after them: the same as the one and then the other.

-- g, r and p: what is popped, as pop_messages has it. a: leases to complete, or, with partitions,
-- what complete_runs takes. Rows are those of pop_messages and those of the acks: one with the
-- request 0 if all leases are simply completed and ended, with the place, partition and count of
-- each; if not, one for each, with a negative number in place of the request's, and marks where it
-- is not so.
create or replace function monarq.ack_and_pop(
    p_now bigint, p_bytes bigint, g_groups text[], g_partition text[], g_count integer[],
    r_batch integer[], r_partitions integer[], r_lease_us bigint[], r_auto_ack boolean[],
    r_consumer text[], r_token text[], p_known text[], a_leases bigint[], a_tokens text[],
    a_partitions bigint[], a_groups text[], a_firsts bigint[], a_lasts bigint[]
) returns table (
    request integer, lease_no bigint, lease_until bigint, next_at bigint,
    queue_id bigint, partition_id bigint, partition_name text, marks json, seq bigint,
    count integer, created_at bigint, data bytea, offsets bytea, transaction_ids text[],
    trace_ids text[], producers text[], headers text[]
)
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_now bigint := monarq.time(p_now);
    v_group bigint;
    v_queue bigint;
    v_lease_us bigint;
    v_ended record;
    v_drained integer := 0;
    v_given integer;
begin
    -- The short way: the partitions of these leases go on to the pops, in one update of each
    -- cursor. That is if nothing else of the group is available, so that what is freed here is
    -- next, and if nothing is special about any of it; if not, all is as it was, but locked.
    <<short>>
    begin
        -- What is good for all pops is said once.
        exit short when cardinality(g_groups) > 1 or g_groups[1] ~ ',' or g_partition[1] is not null
            or r_partitions <> '{1}' or r_auto_ack <> '{f}' or p_known is not null;
        v_group := g_groups[1]::bigint;
        select mq.id, (mq.lease_time * 1000000)::bigint into v_queue, v_lease_us
        from monarq.queues mq join monarq.groups g on g.queue_id = mq.id
        where g.id = v_group and g.joined_to is null
            and (a_groups is null or g.name = all (a_groups)) and not mq.paused
            and mq.delayed_processing = 0 and mq.window_buffer = 0 and mq.max_wait_time_seconds = 0;
        exit short when v_queue is null;
        perform 1 from monarq.cursors c
            where c.group_id = v_group and c.available_at <= v_now
            order by c.available_at, c.partition_id limit 1;
        exit short when found;

        select array_agg(s.row) as rows, array_agg(s.place) as places,
            array_agg(s.partition_id) as partitions, array_agg(s.lease_to - s.position) as counts,
            -- Each has one partition, and no two the same.
            bool_and(s.is_short) and count(*) = cardinality(a_leases)
                and count(distinct s.place) = count(*)
                and count(distinct s.partition_id) = count(*) as is_all,
            array_agg(s.partition_id) filter (where s.last_seq <= s.lease_to) as drained,
            array_agg(s.lease_to) filter (where s.last_seq <= s.lease_to) as drained_to
        into v_ended
        from (
            select e.place, c.*, p.last_seq, c.group_id = v_group and c.lease_no = e.lease_no
                    and c.lease_token = e.token and c.lease_until > v_now and not c.has_unresolved
                    and (e.asked is null or (c.partition_id = e.asked
                        and c.position + 1 = e.first_seq and c.lease_to = e.last_seq)) as is_short
            from (
                select a.*, u.*
                from unnest(a_leases, a_tokens, a_partitions, a_firsts, a_lasts)
                    with ordinality as a (lease_no, token, asked, first_seq, last_seq, place)
                cross join lateral (
                    select ctid as row, partition_id, group_id from monarq.cursors
                    where lease_no = a.lease_no and lease_token = a.token
                        and (a.asked is null or partition_id = a.asked) offset 0
                ) as u
                order by u.partition_id, u.group_id, a.place
            ) as e
            cross join lateral (
                select ctid as row, partition_id, group_id, position, lease_no, lease_token,
                    lease_until, lease_to, has_unresolved
                from monarq.cursors where ctid = e.row for update
            ) as c
            cross join lateral (
                select last_seq from monarq.partitions where id = c.partition_id offset 0
            ) as p
            -- Keeps what is asked of the locked rows from being asked before they are locked.
            offset 0
        ) as s;
        exit short when v_ended.is_all is not true;
        if v_ended.drained is not null then
            -- Those that seem drained wait for pushes under way (see is_drained).
            select count(*) into v_drained
            from unnest(v_ended.drained, v_ended.drained_to) as d (id, last_seq)
            cross join lateral (
                select last_seq from monarq.partitions where id = d.id for share
            ) as p
            where p.last_seq <= d.last_seq;
        end if;
        v_given := least(g_count[1], cardinality(a_leases) - v_drained);

        return query
        with freed as materialized (
            select k.ctid as row, k.partition_id, k.lease_no, k.leased_at, k.consumer,
                k.position + 1 as first_seq, k.lease_to as last_seq, p.name, p.last_seq as end_seq,
                row_number() over (order by p.last_seq <= k.lease_to, k.partition_id)::integer
                    as turn
            from monarq.cursors k
            cross join lateral (
                select name, last_seq from monarq.partitions where id = k.partition_id offset 0
            ) as p
            where k.ctid = any (v_ended.rows)
        ), passed as (
            -- By their place in the table, which is theirs while they are locked.
            update monarq.cursors c set
                position = f.last_seq, ended_lease_no = f.lease_no, ended_answered = true,
                lease_no = f.next_no, lease_token = coalesce(f.next_token, c.lease_token),
                lease_until = f.until, leased_at = case when f.next_no is not null then v_now end,
                lease_to = f.next_to, lease_left = coalesce(f.next_to - f.last_seq, 0),
                lease_of_one = coalesce(f.next_to = f.last_seq + 1, false),
                consumer = f.next_consumer,
                available_at = case when f.next_no is not null then f.until
                    when f.end_seq > f.last_seq then v_now end
            from (
                select f.*, n.*, case when n.next_to is not null
                        then nextval('monarq.lease_numbers') end as next_no
                from freed f
                left join lateral (
                    select r_token[f.turn] as next_token,
                        nullif(coalesce(r_consumer[f.turn], r_consumer[1]), '') as next_consumer,
                        v_now + coalesce(nullif(coalesce(r_lease_us[f.turn], r_lease_us[1]), 0),
                            v_lease_us) as until,
                        case when a.upto > f.last_seq + 1 and (
                                select sum(octet_length(data)) from monarq.segments
                                where partition_id = f.partition_id and first_seq <= a.upto
                                    and first_seq >= (
                                        select max(first_seq) from monarq.segments
                                        where partition_id = f.partition_id
                                            and first_seq <= f.last_seq + 1)
                            ) > p_bytes
                            then greatest(f.last_seq + 1, monarq.last_with_room(
                                f.partition_id, f.last_seq + 1, a.upto, p_bytes))
                            else a.upto end as next_to
                    from (
                        select least(f.last_seq + coalesce(r_batch[f.turn], r_batch[1]), f.end_seq)
                            as upto
                    ) as a
                    where f.turn <= v_given
                    offset 0
                ) as n on true
            ) as f
            where c.ctid = f.row
            returning f.*
        ), logged as (
            insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no,
                leased_at, ended_at, first_seq, last_seq, completed)
            select v_queue, partition_id, v_group, consumer, lease_no, leased_at, v_now, first_seq,
                last_seq, last_seq - first_seq + 1
            from freed
        ), counted as (
            insert into monarq.counters as c (queue_id, group_id, shard, position, completed)
            select v_queue, v_group, monarq.shard(), sum(last_seq - first_seq + 1),
                sum(last_seq - first_seq + 1)
            from freed
            on conflict (queue_id, group_id, shard) do update set
                position = c.position + excluded.position,
                completed = c.completed + excluded.completed
        )
        select 0, null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::text,
            json_build_array(v_ended.places, v_ended.partitions, v_ended.counts),
            null::bigint, null::integer, null::bigint, null::bytea, null::bytea, null::text[],
            null::text[], null::text[], null::text[]
        union all
        select l.turn, l.next_no, l.until, null, v_queue, l.partition_id, l.name, null, s.*
        from passed l
        cross join lateral monarq.messages_between(l.partition_id, l.last_seq + 1, l.next_to) as s
        where l.turn <= v_given
        order by 1, 9;
        if v_given < g_count[1] then
            return query
            select r, null::bigint, null::bigint, v_next, null::bigint, null::bigint, null::text,
                null::json, null::bigint, null::integer, null::bigint, null::bytea, null::bytea,
                null::text[], null::text[], null::text[], null::text[]
            from generate_series(v_given + 1, g_count[1]) r
            cross join lateral monarq.next_available(v_now, array[v_group], null) as v_next;
        end if;
        return;
    end;

    if a_partitions is null then
        return query
        select -a.place, null::bigint, null::bigint, null::bigint, null::bigint, a.partition_id,
            null::text, case when a.fault is not null or a.died > 0 or not a.released
                then json_build_array(a.fault, a.died, a.released) end,
            a.seq, a.count, null::bigint, null::bytea, null::bytea, null::text[], null::text[],
            null::text[], null::text[]
        from monarq.ack_leases(v_now, a_leases, a_tokens, '{0}', '{null}', '{null}') as a;
    else
        return query
        select -a.entry, null::bigint, null::bigint, null::bigint, null::bigint, null::bigint,
            null::text, case when a.faults is not null or not a.released[1]
                then json_build_array(a.faults, a.released) end,
            null::bigint, null::integer, null::bigint, null::bytea, null::bytea, null::text[],
            null::text[], null::text[], null::text[]
        from monarq.complete_runs(v_now, a_partitions, a_groups, a_leases, a_tokens, a_firsts,
            a_lasts) as a;
    end if;
    return query
    select * from monarq.pop_messages(p_now, p_bytes, g_groups, g_partition, g_count, r_batch,
        r_partitions, r_lease_us, r_auto_ack, r_consumer, r_token, p_known);
end
$$;

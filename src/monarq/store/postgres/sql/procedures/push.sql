-- Push: one call a batch, with a mark if it may be repeated. Arrays come sorted by partition id; partitions exist already.

-- Refuses the batch, naming what is in its way: the caller mends it and comes again, so that
-- the path that everybody takes stays short. Nothing of the batch is stored.
--   stale       a queue was changed, or a queue or partition removed: look again
--   full        queue ids that would pass their maxSize, with the room that is left
--   known       transaction ids that are there already: target, ordinal, seq
--   marked      the call's mark is there already: it is a repeat of one that was stored
--   early       the call with the mark after which this one is to come is not there
--   reserved    transaction ids that look like a message of their own partition but name none
create or replace function monarq.refuse(p_reason text, p_detail json) returns void
    language plpgsql
as $$
begin
    raise exception 'monarq: %', p_reason using errcode = 'MQ001', detail = p_detail::text;
end
$$;

-- Refuses a call that was stored before. Whoever comes with a mark while the first with it is
-- under way waits here, before it holds any other lock, until that one is stored or has failed.
create or replace function monarq.keep_mark(p_now bigint, p_mark text) returns void
    language plpgsql
as $$
begin
    insert into monarq.push_marks (mark, pushed_at) values (p_mark, monarq.time(p_now))
        on conflict do nothing;
    if not found then
        perform monarq.refuse('marked', 'null');
    end if;
end
$$;

-- Refuses a call whose predecessor, of which p_after is the mark, is not there. The partitions are
-- locked: a predecessor that shares one of them and was there first has come to its end.
create or replace function monarq.check_after(p_after text) returns void
    language plpgsql
as $$
begin
    if not exists (select from monarq.push_marks where mark = p_after) then
        perform monarq.refuse('early', 'null');
    end if;
end
$$;

-- Takes seqs and turns for what is pushed, and with them the partitions' locks, in order of their
-- ids (before them those of queues that have a maxSize). Refuses what is stale: in a database that
-- was set back, a partition's id may be another one's by now. q: the queues; t_queue says which of
-- them a target is of (null: there is but one). t_names: the partitions' names, a line each.
create or replace function monarq.take_seqs(
    p_now bigint, p_limited boolean, q_id bigint[], q_version bigint[], q_horizon bigint[],
    t_queue integer[], t_partition bigint[], t_names text, t_count integer[],
    out first_seqs bigint[], out first_turns bigint[], out times bigint[]
)
    language plpgsql
as $$
declare
    v_same boolean;
begin
    if p_limited then
        perform 1 from monarq.queues where id = any (q_id) and max_size > 0
            order by id for update;
    end if;
    -- One look into the index for each target, so that they are locked in the order they come in.
    with moved as (
        update monarq.partitions p
        set last_seq = p.last_seq + t.count, turns = p.turns + t.count,
            last_at = greatest(p.last_at, p_now),
            check_at = least(p.check_at, p_now + q_horizon[coalesce(t.queue, 1)])
        from unnest(t_partition, t_count, t_queue, string_to_array(t_names, E'\n'))
            as t (id, count, queue, name)
        where p.id = t.id
        returning p.id, p.last_seq - t.count + 1 as seq, p.turns - t.count + 1 as turn, p.last_at,
            p.queue_id = q_id[coalesce(t.queue, 1)] and p.name = t.name as same
    )
    select array_agg(m.seq), array_agg(m.turn), array_agg(m.last_at), bool_and(m.same)
    into first_seqs, first_turns, times, v_same from (select * from moved order by id) as m;
    if cardinality(first_seqs) is distinct from cardinality(t_partition) or not v_same
        or exists (
            select from unnest(q_id, q_version) as q (id, version)
            where not exists (
                select from monarq.queues mq where mq.id = q.id and mq.version = q.version)
        ) then
        perform monarq.refuse('stale', 'null');
    end if;
end
$$;

-- Refuses what would take a queue past its maxSize; those queues are locked.
create or replace function monarq.check_sizes(
    q_id bigint[], t_queue integer[], t_count integer[]
) returns void
    language plpgsql
as $$
declare
    v_full json;
begin
    select json_agg(json_build_array(t.id, q.room)) into v_full
    from (select q_id[coalesce(u.queue, 1)] as id, sum(u.count) as count
          from unnest(t_count, t_queue) as u (count, queue) group by 1) as t
    cross join lateral (
        select mq.max_size - monarq.pending(mq) as room from monarq.queues mq
        where mq.id = t.id and mq.max_size > 0 offset 0
    ) as q
    where t.count > q.room;
    if v_full is not null then
        perform monarq.refuse('full', v_full);
    end if;
end
$$;

-- Notes the transaction ids of what is pushed, which has null where there is none. Refuses those
-- that are there already; the partitions are locked. p_firsts says which of the ids is the first
-- of each target. p_own: whether one of them may have the form of its partition's own ids.
create or replace function monarq.note_transaction_ids(
    p_partitions bigint[], p_first_seqs bigint[], p_firsts integer[], p_ids text[], p_own boolean
) returns void
    language plpgsql
as $$
declare
    v_known json;
    v_reserved json;
begin
    begin
        if cardinality(p_partitions) = 1 then
            -- As most large pushes are, and a tenth cheaper for the server than to place each id.
            insert into monarq.transaction_ids (partition_id, transaction_id, seq)
            select p_partitions[1], x.id, p_first_seqs[1] + x.place - 1
            from unnest(p_ids) with ordinality as x (id, place) where x.id is not null;
        else
            insert into monarq.transaction_ids (partition_id, transaction_id, seq)
            select p_partitions[x.target], x.id, p_first_seqs[x.target] + x.ordinal
            from monarq.placed(p_ids, p_firsts) as x;
        end if;
    exception when unique_violation then
        select json_agg(json_build_array(x.target, x.ordinal, t.seq)) into v_known
        from monarq.placed(p_ids, p_firsts) as x
        -- One look into the index for each, never a join that reads it all.
        cross join lateral (
            select k.seq from monarq.transaction_ids k
            where k.partition_id = p_partitions[x.target] and k.transaction_id = x.id limit 1
        ) as t;
    end;
    if v_known is null and p_own then
        -- An id <partition>-<seq> of its own partition is that message's.
        select json_agg(json_build_array(x.target, x.ordinal, own.seq)) filter (where own.kept),
            json_agg(json_build_array(x.target, x.ordinal)) filter (where not own.kept)
        into v_known, v_reserved
        from monarq.placed(p_ids, p_firsts) as x
        cross join lateral (
            select split_part(x.id, '-', 2)::bigint as seq, monarq.has_own_id(
                p_partitions[x.target], split_part(x.id, '-', 2)::bigint) as kept
        ) as own
        where x.id ~ '^[1-9][0-9]{0,17}-[1-9][0-9]{0,17}$'
            and x.id like p_partitions[x.target] || '-%';
        if v_reserved is not null then
            perform monarq.refuse('reserved', v_reserved);
        end if;
    end if;
    if v_known is not null then
        perform monarq.refuse('known', v_known);
    end if;
end
$$;

-- Of each id, its target and how many of the target's messages come before.
create or replace function monarq.placed(p_ids text[], p_firsts integer[])
    returns table (id text, target integer, ordinal integer)
    language sql immutable
as $$
    select x.id, t.number, x.place::integer - p_firsts[t.number]
    from unnest(p_ids) with ordinality as x (id, place)
    cross join lateral (select width_bucket(x.place::integer, p_firsts) as number offset 0) as t
    where x.id is not null
$$;

-- Whether a message or item is kept that has its id as transaction id.
create or replace function monarq.has_own_id(p_partition bigint, p_seq bigint) returns boolean
    language sql stable
as $$
    select exists (
        select from (
            select count, first_seq, transaction_ids from monarq.segments
            where partition_id = p_partition and first_seq <= p_seq
            order by first_seq desc limit 1
        ) as s
        where p_seq < s.first_seq + s.count
            and s.transaction_ids[p_seq - s.first_seq + 1] is null
    ) or exists (
        select from monarq.items i
        where i.partition_id = p_partition and i.seq = p_seq and i.transaction_id is null
    )
$$;

-- t: targets, one a partition; t_queue as in take_seqs. s: segments, in order of their targets.
-- Where each target is one segment, s_target, s_skip and s_count are null; otherwise s_skip says
-- how many of the target's messages come before. s_from says how many messages come before a
-- segment, of all that are pushed. Payloads and offsets of all segments are one piece each, since
-- an array of them takes the caller much longer to send: s_at and s_bytes say where in p_data a
-- segment begins and how long it is. Metadata is one array over all messages in order, or null.
-- Transaction ids are one text, a line each, empty where the caller gave none. x_firsts as in
-- note_transaction_ids, null if there are none. Answers the first seq and the time of each target.
create or replace function monarq.push_messages(
    p_now bigint, p_mark text, p_after text, p_limited boolean,
    q_id bigint[], q_version bigint[], q_horizon bigint[],
    t_queue integer[], t_partition bigint[], t_names text, t_count integer[],
    s_target integer[], s_skip integer[], s_from integer[], s_count integer[],
    s_at integer[], s_bytes integer[], p_data bytea, p_offsets bytea,
    p_transaction_ids text, p_trace_ids text[], p_producers text[], p_headers text[],
    x_firsts integer[], p_own boolean,
    out first_seqs bigint[], out times bigint[]
)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_ids text[] := string_to_array(p_transaction_ids, E'\n', '');
begin
    if p_mark is not null then
        perform monarq.keep_mark(v_now, p_mark);
    end if;
    select taken.first_seqs, taken.times into first_seqs, times
    from monarq.take_seqs(v_now, p_limited, q_id, q_version, q_horizon, t_queue, t_partition,
        t_names, t_count) as taken;
    if p_after is not null then
        perform monarq.check_after(p_after);
    end if;
    if x_firsts is not null then
        perform monarq.note_transaction_ids(t_partition, first_seqs, x_firsts, v_ids, p_own);
    end if;
    if p_limited then
        perform monarq.check_sizes(q_id, t_queue, t_count);
    end if;

    if s_target is null then
        insert into monarq.segments (partition_id, first_seq, count, created_at, data, offsets,
            transaction_ids, trace_ids, producers, headers)
        select s.partition_id, s.first_seq, s.count, s.at,
            substr(p_data, s.byte + 1, s.bytes),
            -- Each segment has one offset more than it has messages.
            substr(p_offsets, (4 * (s.start + s.number) - 3)::integer, 4 * (s.count + 1)),
            v_ids[s.start + 1 : s.start + s.count],
            p_trace_ids[s.start + 1 : s.start + s.count],
            p_producers[s.start + 1 : s.start + s.count],
            p_headers[s.start + 1 : s.start + s.count]
        from unnest(t_partition, first_seqs, t_count, times, s_from, s_at, s_bytes) with ordinality
            as s (partition_id, first_seq, count, at, start, byte, bytes, number);
    else
        insert into monarq.segments (partition_id, first_seq, count, created_at, data, offsets,
            transaction_ids, trace_ids, producers, headers)
        select t_partition[s.target], first_seqs[s.target] + s.skip, s.count, times[s.target],
            substr(p_data, s.byte + 1, s.bytes),
            -- Each segment has one offset more than it has messages.
            substr(p_offsets, (4 * (s.start + s.number) - 3)::integer, 4 * (s.count + 1)),
            v_ids[s.start + 1 : s.start + s.count],
            p_trace_ids[s.start + 1 : s.start + s.count],
            p_producers[s.start + 1 : s.start + s.count],
            p_headers[s.start + 1 : s.start + s.count]
        from unnest(s_target, s_skip, s_from, s_count, s_at, s_bytes) with ordinality
            as s (target, skip, start, count, byte, bytes, number);
    end if;

    -- Only where a group had nothing left: elsewhere whoever has the lease finds these.
    update monarq.cursors set available_at = v_now
        where partition_id = any (t_partition) and available_at is null;

    insert into monarq.counters as c (queue_id, group_id, shard, pushed)
    select q_id[coalesce(t.queue, 1)], 0, monarq.shard(), sum(t.count)
    from unnest(t_count, t_queue) as t (count, queue) group by 1 order by 1
    on conflict (queue_id, group_id, shard) do update set pushed = c.pushed + excluded.pushed;
end
$$;

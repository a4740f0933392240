-- Pop from ordered queues: one call for many requests.

-- When something will be there for these groups, as far as is known. A partition that has to be
-- quiet first counts from its last push; looking at the first few is enough, as long as what is
-- not looked at bounds the answer.
create or replace function monarq.next_available(
    p_now bigint, p_groups bigint[], p_partition bigint
) returns bigint
    language sql stable
as $$
    select min(case when first.place = 100 then first.available_at
        else greatest(first.available_at, case when q.window_buffer > 0
            then p.last_at + (q.window_buffer * 1000000)::bigint end) end)
    from unnest(p_groups) g
    cross join lateral (
        select c.partition_id, c.available_at, row_number() over () as place from (
            select partition_id, available_at from monarq.cursors
            where group_id = g and available_at > p_now
                and (p_partition is null or partition_id = p_partition)
            order by available_at, partition_id limit 100
        ) as c
    ) as first
    cross join lateral (
        select queue_id, last_at from monarq.partitions where id = first.partition_id offset 0
    ) as p
    cross join lateral (
        select window_buffer from monarq.queues where id = p.queue_id offset 0
    ) as q
$$;

-- Leases the next partition of a group to one request, if it is simply next; it is the same as the
-- short way of pop_messages, step by step: for one, that is much less to set up. is_special: there
-- is one, but it has to be looked into; no partition: there is none. is_whole: it
-- got one segment, and all of it.
create or replace function monarq.lease_next(
    p_now bigint, p_bytes bigint, p_queue monarq.queues, p_group bigint, p_batch integer,
    p_lease_us bigint, p_token text, p_consumer text,
    out is_special boolean, out partition_id bigint, out name text, out lease_no bigint,
    out until bigint, out first_seq bigint, out last_seq bigint, out is_whole boolean
)
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_row tid;
    v_position bigint;
    v_from bigint;
    v_to bigint;
    v_bytes bigint;
begin
    select c.ctid, c.partition_id, c.position, c.lease_no is not null or c.has_unresolved
    into v_row, partition_id, v_position, is_special
    from monarq.cursors c
    where c.group_id = p_group and c.available_at <= p_now
    order by c.available_at, c.partition_id limit 1
    for update skip locked;
    if not found then
        return;
    end if;
    select p.name, p.last_seq into name, last_seq from monarq.partitions p
        where p.id = lease_next.partition_id;
    is_special := is_special or last_seq <= v_position;
    if is_special then
        return;
    end if;
    first_seq := v_position + 1;
    last_seq := least(v_position + p_batch, last_seq);
    select s.first_seq, s.first_seq + s.count - 1, octet_length(s.data)
    into v_from, v_to, v_bytes
    from monarq.segments s
    where s.partition_id = lease_next.partition_id and s.first_seq <= lease_next.first_seq
    order by s.first_seq desc limit 1;
    if v_to < last_seq then
        v_bytes := monarq.bytes_around(partition_id, first_seq, last_seq);
    end if;
    if v_bytes > p_bytes then
        last_seq := greatest(first_seq,
            monarq.last_with_room(partition_id, first_seq, last_seq, p_bytes));
    end if;
    is_whole := v_from = first_seq and v_to = last_seq;
    lease_no := nextval('monarq.lease_numbers');
    until := p_now + coalesce(p_lease_us, (p_queue.lease_time * 1000000)::bigint);
    -- By its place in the table, which is its own while it is locked.
    update monarq.cursors set lease_no = lease_next.lease_no, lease_token = p_token,
        lease_until = until, leased_at = p_now, lease_to = last_seq,
        lease_left = last_seq - v_position, lease_of_one = last_seq = first_seq,
        consumer = p_consumer, available_at = until
        where ctid = v_row;
end
$$;

-- These messages, one row a segment, which is cut to them.
create or replace function monarq.messages_between(
    p_partition bigint, p_first bigint, p_last bigint
) returns table (
    seq bigint, count integer, created_at bigint, data bytea, offsets bytea,
    transaction_ids text[], trace_ids text[], producers text[], headers text[]
)
    language sql stable
as $$
    select s.first_seq + cut.skip, cut.length, s.created_at,
        case when cut.length = s.count then s.data else substring(s.data
            from monarq.offset_at(o.offsets, 0) + 1
            for monarq.offset_at(o.offsets, cut.length) - monarq.offset_at(o.offsets, 0)) end,
        o.offsets,
        case when cut.length = s.count then s.transaction_ids
            else s.transaction_ids[cut.skip + 1 : cut.skip + cut.length] end,
        case when cut.length = s.count then s.trace_ids
            else s.trace_ids[cut.skip + 1 : cut.skip + cut.length] end,
        case when cut.length = s.count then s.producers
            else s.producers[cut.skip + 1 : cut.skip + cut.length] end,
        case when cut.length = s.count then s.headers
            else s.headers[cut.skip + 1 : cut.skip + cut.length] end
    -- The one with the first message, and where more than that is wanted, those behind it.
    from (
        (select * from monarq.segments
            where partition_id = p_partition and first_seq <= p_first
            order by first_seq desc limit 1)
        union all
        (select * from monarq.segments
            where p_last > p_first and partition_id = p_partition
                and first_seq > p_first and first_seq <= p_last offset 0)
    ) as s
    cross join lateral (
        select greatest(p_first - s.first_seq, 0)::integer as skip,
            (least(p_last - s.first_seq + 1, s.count)
                - greatest(p_first - s.first_seq, 0))::integer as length
    ) as cut
    -- Cut once: it is looked into for where the payloads begin and end.
    cross join lateral (
        select case when cut.length = s.count then s.offsets
            else substring(s.offsets from 4 * cut.skip + 1 for 4 * (cut.length + 1)) end as offsets
        offset 0
    ) as o
    where cut.length > 0
$$;

-- g: runs of requests for the same thing, how many each. g_groups: the groups' ids as text, one,
-- or by labels several joined by commas. r: the requests in order; an array with one element is
-- good for all of them, and 0 or '' stands for none. Rows come in order of delivery: one a
-- segment; requests that found nothing have one row without a partition, which says when there
-- may be something (-1: the group is gone). p_bytes is the room that each answer has; rows of one
-- with too little for what was there have a next_at, too. p_known: segments (partition, first seq
-- and time) that the caller has; one that is delivered whole comes without its data.
create or replace function monarq.pop_messages(
    p_now bigint, p_bytes bigint, g_groups text[], g_partition text[], g_count integer[],
    r_batch integer[],
    r_partitions integer[], r_lease_us bigint[], r_auto_ack boolean[], r_consumer text[],
    r_token text[], p_known text[]
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
    v_request integer := 1;
    v_end integer := 0;
    v_groups bigint[];
    q monarq.queues;
    v_slow boolean;
    v_joining boolean;
    v_next bigint;
    v_partition bigint;
    v_found record;
    v_one record;
    v_got record;
    o_request integer[];
    o_lease bigint[];
    o_until bigint[];
    o_partition bigint[];
    o_first bigint[];
    o_last bigint[];
    o_marks json[];
    o_next bigint[];
begin
    for v_run in 1 .. cardinality(g_groups) loop
        v_end := v_end + g_count[v_run];
        v_groups := string_to_array(g_groups[v_run], ',')::bigint[];
        v_slow := true;
        v_joining := false;
        v_next := null;
        v_partition := null;
        if cardinality(v_groups) = 1 then
            select mq as queue, g.joined_to is not null as joining into v_found
                from monarq.queues mq join monarq.groups g on g.queue_id = mq.id
                where g.id = v_groups[1];
            q := v_found.queue;
            v_joining := coalesce(v_found.joining, false);
            if q.id is null then
                v_next := -1;
            elsif not q.paused then
                v_slow := v_joining or g_partition[v_run] is not null
                    or q.delayed_processing > 0 or q.window_buffer > 0
                    or q.max_wait_time_seconds > 0
                    or case when cardinality(r_auto_ack) = 1 then r_auto_ack[1]
                        else true = any (r_auto_ack[v_request : v_end]) end
                    or case when cardinality(r_partitions) = 1 then r_partitions[1] > 1
                        else 1 < any (r_partitions[v_request : v_end]) end;
            end if;
            if g_partition[v_run] is not null then
                select p.id into v_partition from monarq.partitions p
                    where p.queue_id = q.id and p.name = g_partition[v_run];
            end if;
            if q.id is null or q.paused
                or (g_partition[v_run] is not null and v_partition is null) then
                v_groups := '{}';
            end if;
        else
            v_joining := exists (
                select from monarq.groups where id = any (v_groups) and joined_to is not null);
        end if;
        if not v_slow and g_count[v_run] = 1 then
            v_one := monarq.lease_next(v_now, p_bytes, q, v_groups[1],
                coalesce(r_batch[v_request], r_batch[1]),
                nullif(coalesce(r_lease_us[v_request], r_lease_us[1]), 0), r_token[v_request],
                nullif(coalesce(r_consumer[v_request], r_consumer[1]), ''));
            if v_one.is_special then
                v_slow := true;
            elsif v_one.is_whole then
                return query
                select v_request, v_one.lease_no, v_one.until, null::bigint, q.id,
                    v_one.partition_id, v_one.name, null::json, s.first_seq, s.count,
                    s.created_at, case when s.deleted > 0 or (s.partition_id || '-' || s.first_seq
                        || '-' || s.created_at = any (p_known)) is not true then s.data end,
                    s.offsets, s.transaction_ids, s.trace_ids, s.producers, s.headers
                from monarq.segments s
                where s.partition_id = v_one.partition_id and s.first_seq = v_one.first_seq;
                v_request := v_request + 1;
            elsif v_one.partition_id is not null then
                return query
                select v_request, v_one.lease_no, v_one.until, null::bigint, q.id,
                    v_one.partition_id, v_one.name, null::json, s.*
                from monarq.messages_between(
                    v_one.partition_id, v_one.first_seq, v_one.last_seq) as s
                order by s.seq;
                v_request := v_request + 1;
            end if;
        end if;
        -- The short way: as many cursors as there are requests, one each, in one statement. It
        -- answers all of them, or, if one cursor is not simply next, none.
        if not v_slow and g_count[v_run] > 1 then
            return query
            with locked as materialized (
                select c.ctid as row, c.partition_id, c.position,
                    c.lease_no is not null or c.has_unresolved as special
                from monarq.cursors c
                where c.group_id = v_groups[1] and c.available_at <= v_now
                order by c.available_at, c.partition_id
                limit g_count[v_run]
                for update skip locked
            ), next as materialized (
                select l.*, p.name, p.last_seq, row_number() over () as place
                from locked l
                cross join lateral (
                    select name, last_seq from monarq.partitions where id = l.partition_id offset 0
                ) as p
            ), leased as (
                -- By their place in the table, which is theirs while they are locked.
                update monarq.cursors c set
                    lease_no = n.lease_no, lease_token = n.token, lease_until = n.until,
                    leased_at = v_now, lease_to = n.lease_to, lease_left = n.lease_to - n.position,
                    lease_of_one = n.lease_to = n.position + 1, consumer = n.consumer,
                    available_at = n.until
                from (
                    select nextval('monarq.lease_numbers') as lease_no, f.row, f.partition_id,
                        f.position, f.name, f.place, i.token,
                        nullif(coalesce(i.consumer, r_consumer[1]), '') as consumer,
                        v_now + coalesce(nullif(coalesce(i.lease_us, r_lease_us[1]), 0),
                            (q.lease_time * 1000000)::bigint) as until,
                        room.lease_to
                    from next f
                    join unnest(r_token[v_request : v_end], r_consumer[v_request : v_end],
                            r_lease_us[v_request : v_end], r_batch[v_request : v_end])
                        with ordinality as i (token, consumer, lease_us, batch, place)
                        on i.place = f.place
                    cross join lateral (
                        select least(f.position + coalesce(i.batch, r_batch[1]), f.last_seq)
                            as last_seq
                    ) as asked
                    -- A single message always has room; most others have it with their segments.
                    cross join lateral (
                        select sum(octet_length(data)) as bytes from monarq.segments
                        where asked.last_seq > f.position + 1 and partition_id = f.partition_id
                            and first_seq <= asked.last_seq
                            and first_seq >= (
                                select max(first_seq) from monarq.segments
                                where partition_id = f.partition_id
                                    and first_seq <= f.position + 1)
                    ) as around
                    cross join lateral (
                        select case when around.bytes > p_bytes
                            then greatest(f.position + 1, monarq.last_with_room(
                                f.partition_id, f.position + 1, asked.last_seq, p_bytes))
                            else asked.last_seq end as lease_to
                        offset 0
                    ) as room
                    where not exists (select from next where special or last_seq <= position)
                ) as n
                where c.ctid = n.row
                returning n.place, n.lease_no, n.until, n.partition_id, n.name,
                    n.position + 1 as first_seq, n.lease_to as last_seq
            )
            select v_request - 1 + l.place::integer, l.lease_no, l.until, null::bigint, q.id,
                l.partition_id, l.name, null::json, s.*
            from leased l
            cross join lateral monarq.messages_between(l.partition_id, l.first_seq, l.last_seq) as s
            union all
            -- A row that changed before it was locked is there, but not as it was seen.
            select r, null, null, (select case when count(*) > (select count(*) from leased)
                    then v_now else monarq.next_available(v_now, v_groups, null) end from next),
                null, null, null, null, null, null, null, null, null, null, null, null, null
            from generate_series(v_request, v_end) r
            where r not in (select v_request - 1 + place from leased)
                and not exists (select from next where special or last_seq <= position)
            order by 1, 9;
            if found then
                v_request := v_end + 1;
            else
                v_slow := true;
            end if;
        end if;
        while v_slow and v_request <= v_end loop
            if v_joining then
                perform monarq.make_for_pop(v_now, v_groups, v_partition);
            end if;
            v_got := monarq.pop_slowly(v_now, v_groups, v_joining, v_partition,
                coalesce(r_batch[v_request], r_batch[1]),
                coalesce(r_partitions[v_request], r_partitions[1]), p_bytes,
                nullif(coalesce(r_lease_us[v_request], r_lease_us[1]), 0),
                coalesce(r_auto_ack[v_request], r_auto_ack[1]), r_token[v_request],
                nullif(coalesce(r_consumer[v_request], r_consumer[1]), ''));
            exit when v_got.partition_ids is null;
            o_request := o_request
                || array_fill(v_request, array[cardinality(v_got.partition_ids)]);
            o_lease := o_lease
                || array_fill(v_got.lease_no, array[cardinality(v_got.partition_ids)]);
            o_until := o_until || v_got.untils;
            o_partition := o_partition || v_got.partition_ids;
            o_first := o_first || v_got.first_seqs;
            o_last := o_last || v_got.last_seqs;
            o_marks := o_marks || v_got.marks;
            o_next := o_next || array_fill(case when v_got.is_cut then v_now end,
                array[cardinality(v_got.partition_ids)]);
            v_request := v_request + 1;
        end loop;
        if v_request <= v_end then
            return query
            select r, null::bigint, null::bigint,
                coalesce(v_next, case when v_joining and v_partition is null then v_now end,
                    monarq.next_available(v_now, v_groups, v_partition)),
                null::bigint, null::bigint, null::text, null::json, null::bigint, null::integer,
                null::bigint, null::bytea, null::bytea, null::text[], null::text[], null::text[],
                null::text[]
            from generate_series(v_request, v_end) r;
        end if;
        v_request := v_end + 1;
    end loop;
    if o_request is null then
        return;
    end if;

    return query
    select o.request, o.lease, case when o.lease is not null then o.until end, o.next_at,
        p.queue_id, o.partition_id, p.name, o.marks, s.*
    from unnest(o_request, o_lease, o_until, o_partition, o_first, o_last, o_marks, o_next)
        with ordinality as o (request, lease, until, partition_id, first_seq, last_seq, marks,
            next_at, place)
    cross join lateral (
        select queue_id, name from monarq.partitions where id = o.partition_id offset 0
    ) as p
    cross join lateral monarq.messages_between(o.partition_id, o.first_seq, o.last_seq) as s
    order by o.place, s.seq;
end
$$;

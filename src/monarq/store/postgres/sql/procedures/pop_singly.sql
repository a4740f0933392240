-- Pops that lease one cursor after the other, where what is simply next is not what they get.

-- Leases one locked, available cursor, or makes it unavailable if there is nothing to deliver
-- yet. p_lease is null for auto-ack; p_bytes is the room for payloads, which the first message
-- does not need if p_must, that is, if this is the answer's first partition; p_alone: nobody asks for
-- what is left of it. Answers the range of seqs and, where not all of it is meant or any was delivered
-- before, which and how often; none if there is nothing; and the room that is left, null if there was
-- not enough. Suspects are not leased together with other partitions: has_suspects ends the answer, and
-- leaves them to the next one if they would not be its first.
create or replace function monarq.lease_cursor(
    p_now bigint, p_queue monarq.queues, p_partition bigint, p_group bigint, p_batch integer,
    p_bytes bigint, p_must boolean, p_alone boolean, p_lease bigint, p_token text,
    p_until bigint, p_consumer text,
    out first_seq bigint, out last_seq bigint, out marks json, out taken integer, out room bigint,
    out has_suspects boolean
)
    language plpgsql
as $$
declare
    c monarq.cursors;
    p monarq.partitions;
    v_delay bigint := (p_queue.delayed_processing * 1000000)::bigint;
    v_window bigint := (p_queue.window_buffer * 1000000)::bigint;
    v_until bigint;
    v_head bigint;
    v_fits boolean;
begin
    taken := 0;
    room := p_bytes;
    has_suspects := false;
    c := monarq.settle(p_now, p_queue, p_partition, p_group);
    if c.available_at is null or c.available_at > p_now then
        return;
    end if;
    if monarq.is_drained(p_partition, c.position) then
        update monarq.cursors set available_at = null
            where partition_id = p_partition and group_id = p_group;
        return;
    end if;
    select * into p from monarq.partitions where id = p_partition;
    -- When the first message that could be delivered may be: a quiet partition, its age, its retry.
    select greatest(case when v_window > 0 then p.last_at + v_window end,
        case when v_delay > 0 then m.created_at + v_delay end, u.retry_at) into v_head
    from monarq.message_at(p_partition, c.position + 1) m
    left join monarq.unresolved u
        on u.partition_id = p_partition and u.group_id = p_group and u.seq = c.position + 1;
    if v_head > p_now then
        update monarq.cursors set available_at = v_head
            where partition_id = p_partition and group_id = p_group;
        return;
    end if;

    v_until := p.last_seq;
    if v_delay > 0 then
        v_until := monarq.seq_before(p_partition, p_now - v_delay + 1);
    end if;
    first_seq := c.position + 1;
    if not c.has_unresolved then
        last_seq := least(c.position + p_batch, v_until);
        v_fits := monarq.bytes_around(p_partition, first_seq, last_seq) <= p_bytes;
        if not (p_alone and v_fits) then
            room := p_bytes - monarq.bytes_of(p_partition, first_seq, last_seq);
        end if;
        if room < 0 then
            room := null;
            last_seq := greatest(
                monarq.last_with_room(p_partition, first_seq, last_seq, p_bytes),
                case when p_must then first_seq end);
        end if;
        taken := last_seq - c.position;
    else
        -- In order, without the acked ones, up to the first whose retry time has not come.
        with candidates as (
            select s, u.attempts, u.retry_at, u.lease_limit
            from generate_series(c.position + 1,
                least(v_until, monarq.end_of_next(p_partition, p_group, c.position, p_batch))) s
            left join monarq.unresolved u
                on u.partition_id = p_partition and u.group_id = p_group and u.seq = s
            where u.acked is not true
            order by s limit p_batch
        ), due as (
            select s, attempts, lease_limit from (
                select *, min(lease_limit) over (order by s) as most,
                    row_number() over (order by s) as place
                from candidates
            ) as limited
            where s < coalesce((select min(s) from candidates where retry_at > p_now), v_until + 1)
                and place <= coalesce(most, place)
        ), sized as (
            select d.s, d.attempts, d.lease_limit, m.bytes, sum(m.bytes) over (order by d.s) as sum,
                row_number() over (order by d.s) as place
            from due d
            join monarq.message_sizes(p_partition, (select min(s) from due),
                (select max(s) from due)) as m on m.seq = d.s
        ), fitting as (
            select * from sized where sum <= p_bytes or (p_must and place = 1)
        )
        select min(s), max(s), count(*),
            json_build_object('seqs', json_agg(s order by s),
                'attempts', json_agg(coalesce(attempts, 0) + 1 order by s)),
            case when count(*) = (select count(*) from due) then p_bytes - max(sum) end,
            coalesce(bool_or(lease_limit is not null), false)
        into first_seq, last_seq, taken, marks, room, has_suspects from fitting;
        if has_suspects and not p_must then
            taken := 0;
        end if;
    end if;
    if taken = 0 then
        return;
    end if;

    if p_lease is not null then
        update monarq.cursors set lease_no = p_lease, lease_token = p_token, lease_until = p_until,
            leased_at = p_now, lease_to = last_seq, lease_left = taken,
            lease_of_one = taken = 1 and p_alone, consumer = p_consumer, available_at = p_until
            where partition_id = p_partition and group_id = p_group;
        return;
    end if;
    insert into monarq.unresolved (partition_id, group_id, seq, acked)
    select p_partition, p_group, s, true
    from generate_series(first_seq, last_seq) s
    on conflict (partition_id, group_id, seq) do update set acked = true;
    c := monarq.advance(p_queue.id, p_partition, p_group);
    perform monarq.end_lease(p_partition, p_group, c.position, p_now, c.ended_answered);
    insert into monarq.deliveries (queue_id, partition_id, group_id, consumer, lease_no, leased_at,
        ended_at, first_seq, last_seq, completed)
    values (p_queue.id, p_partition, p_group, p_consumer, 0, p_now, p_now, first_seq, last_seq,
        taken);
    perform monarq.tally(p_queue.id, p_group, completed => taken);
end
$$;

-- Finds and locks the cursor to pop next: of one queue, or, with labels, of the queue with the
-- highest priority among those that have one. Null if there is none.
create or replace function monarq.next_cursor(
    p_now bigint, p_groups bigint[], p_partition bigint, p_behind monarq.cursors
) returns monarq.cursors
    language plpgsql
as $$
declare
    c monarq.cursors;
    v_group bigint;
begin
    if cardinality(p_groups) = 0 then
        return null;
    end if;
    if p_partition is not null then
        select * into c from monarq.cursors
            where partition_id = p_partition and group_id = p_groups[1] and available_at <= p_now
            for update skip locked;
        return c;
    end if;
    if cardinality(p_groups) = 1 then
        -- Behind the one that was found before, so as not to pass over the same ones again.
        select * into c from monarq.cursors
            where group_id = p_groups[1] and available_at <= p_now
                and (available_at, partition_id) > (
                    coalesce(p_behind.available_at, -1), coalesce(p_behind.partition_id, 0))
            order by available_at, partition_id limit 1
            for update skip locked;
        return c;
    end if;
    -- Groups come with the highest priority first; one probe of the index for each.
    for v_group in
        select g.id from unnest(p_groups) as g (id)
        cross join lateral (
            select queue_id from monarq.groups where id = g.id offset 0
        ) as mg
        cross join lateral (
            select paused, priority from monarq.queues where id = mg.queue_id offset 0
        ) as q
        cross join lateral (
            select available_at, partition_id from monarq.cursors
            where group_id = g.id and available_at <= p_now
            order by available_at, partition_id limit 1
        ) as first
        where not q.paused
        order by q.priority desc, first.available_at, first.partition_id
        limit 100
    loop
        select * into c from monarq.cursors
            where group_id = v_group and available_at <= p_now
            order by available_at, partition_id limit 1
            for update skip locked;
        if found then
            return c;
        end if;
    end loop;
    return null;
end
$$;

-- One request that takes the long way: several partitions, labels, auto-ack, or a queue with
-- delays. Appends what it leased. p_joining: some of the groups may not have all their cursors yet, and
-- what has none waits longer than what became available since.
create or replace function monarq.pop_slowly(
    p_now bigint, p_groups bigint[], p_joining boolean, p_partition bigint, p_batch integer, p_partitions integer,
    p_bytes bigint, p_lease_us bigint, p_auto_ack boolean, p_token text, p_consumer text,
    out lease_no bigint, out untils bigint[], out partition_ids bigint[],
    out first_seqs bigint[], out last_seqs bigint[], out marks json[], out is_cut boolean
)
    language plpgsql
as $$
declare
    c monarq.cursors;
    q monarq.queues;
    v_left integer := p_batch;
    v_room bigint := p_bytes;
    v_until bigint;
    v_got record;
    v_tries integer := 0;
begin
    is_cut := false;
    loop
        exit when v_left <= 0 or coalesce(cardinality(partition_ids), 0) >= p_partitions;
        -- What cannot be delivered is made unavailable, so this ends; the bound is for
        -- partitions with more to bury than one step does.
        v_tries := v_tries + 1;
        exit when v_tries > p_partitions + 1000;
        c := monarq.next_cursor(p_now, p_groups, p_partition, c);
        exit when c.partition_id is null;
        exit when p_joining and p_partition is null and partition_ids is not null and exists (
            select from monarq.groups g where g.id = c.group_id
                and g.joined_to is not null and g.created_at < c.available_at);
        select mq.* into q from monarq.queues mq join monarq.groups g on g.queue_id = mq.id
            where g.id = c.group_id;
        if lease_no is null and not p_auto_ack then
            lease_no := nextval('monarq.lease_numbers');
        end if;
        v_until := p_now + coalesce(p_lease_us, (q.lease_time * 1000000)::bigint);
        v_got := monarq.lease_cursor(p_now, q, c.partition_id, c.group_id, v_left, v_room,
            partition_ids is null, p_partitions = 1, lease_no, p_token, v_until, p_consumer);
        v_room := v_got.room;
        if v_got.taken > 0 then
            v_left := v_left - v_got.taken;
            untils := untils || v_until;
            partition_ids := partition_ids || c.partition_id;
            first_seqs := first_seqs || v_got.first_seq;
            last_seqs := last_seqs || v_got.last_seq;
            marks := marks || v_got.marks;
        end if;
        is_cut := v_room is null;
        exit when is_cut or p_partition is not null or v_got.has_suspects;
    end loop;
    if p_partitions > 1 and p_batch - v_left = 1 and not p_auto_ack then
        -- Only now it is known that no other partition is under the lease.
        update monarq.cursors k set lease_of_one = true where k.lease_no = pop_slowly.lease_no;
    end if;
end
$$;

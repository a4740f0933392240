-- Leases: what they entitle to, what is under them, answers to all of it, and new deadlines.

-- Why a lease (number and token) does not entitle to a cursor, by the table in docs/model.md;
-- null if it does. p_lease null: any live lease will do.
create or replace function monarq.lease_fault(
    p_now bigint, c monarq.cursors, p_lease bigint, p_token text
) returns text
    language sql stable
as $$
    select case
        when p_lease is null then
            case when c.lease_no is null or c.lease_until <= p_now then 'lease_expired' end
        when c.lease_no = p_lease and c.lease_token = p_token then
            case when c.lease_until <= p_now then 'lease_expired' end
        when c.lease_no is null and c.ended_lease_no = p_lease and c.lease_token = p_token then
            case when c.ended_answered then 'already_acked' else 'lease_expired' end
        when monarq.is_live_lease(p_now, p_lease, p_token) then 'lease_foreign'
        when p_lease < greatest(c.lease_no, c.ended_lease_no) then 'lease_taken_over'
        else 'lease_unknown' end
$$;

create or replace function monarq.is_live_lease(
    p_now bigint, p_lease bigint, p_token text
) returns boolean
    language sql stable
as $$
    -- First the lease, then its time: an index of deadlines has much more to look through.
    select exists (
            select from (
                select lease_until from monarq.cursors
                where lease_no = p_lease and lease_token = p_token offset 0
            ) as c where c.lease_until > p_now)
        or exists (
            select from (
                select due_at from monarq.items
                where lease_no = p_lease and lease_token = p_token offset 0
            ) as i where i.due_at > p_now)
$$;

-- What is under each of these leases: partitions with their group, or items.
create or replace function monarq.under_leases(p_leases bigint[], p_tokens text[])
    returns table (place integer, partition_id bigint, group_name text, seq bigint)
    language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    select l.place::integer, leased.partition_id, leased.group_name, leased.seq
    from unnest(p_leases, p_tokens) with ordinality as l (lease_no, token, place)
    cross join lateral (
        select c.partition_id, (select g.name from monarq.groups g where g.id = c.group_id),
            null::bigint
        from monarq.cursors c where c.lease_no = l.lease_no and c.lease_token = l.token
        union all
        select i.partition_id, null::text, i.seq from monarq.items i
        where i.lease_no = l.lease_no and i.lease_token = l.token
    ) as leased (partition_id, group_name, seq)
    order by l.place, leased.partition_id, leased.group_name, leased.seq;
end
$$;

-- Answers all that is under these leases and has no answer yet. Of leases over items it says what
-- is under them, with their seqs, and leaves the answer to ack_items; of those that cover nothing
-- it says nothing. A status, error or time that is the only one is good for all of them.
create or replace function monarq.ack_leases(
    p_now bigint, p_leases bigint[], p_tokens text[], p_statuses integer[], p_errors text[],
    p_retries bigint[]
) returns table (
        place integer, partition_id bigint, seq bigint, fault text, died integer, count integer,
        released boolean
    )
    language plpgsql
as $$
#variable_conflict use_column
declare
    v_now bigint := monarq.time(p_now);
    v_one record;
    v_done record;
    v_under record;
    v_entries record;
begin
    if cardinality(p_leases) = 1 and p_statuses[1] = 0 then
        v_one := monarq.complete_lease(v_now, p_leases[1], p_tokens[1], null, null, null, null);
        if v_one.partition_id is not null then
            place := 1; partition_id := v_one.partition_id; died := 0; count := v_one.count;
            released := true;
            return next;
            return;
        end if;
    end if;
    v_done := monarq.complete_leases(v_now, p_leases, p_tokens, p_statuses, null, null, null,
        null);
    return query
    select d.place, d.partition_id, null::bigint, null::text, 0, d.count, true
    from unnest(v_done.places, v_done.partitions, v_done.counts) as d (place, partition_id, count);
    if v_done.is_all then
        return;
    end if;
    select array_agg(u.place) as places, array_agg(u.partition_id) as partitions,
        array_agg(u.group_name) as groups, array_agg(u.seq) as seqs into v_under
    from monarq.under_leases(p_leases, p_tokens) as u;
    select array_agg(e.place) as places, array_agg(e.partition_id) as partitions,
        array_agg(e.group_name) as groups, array_agg(e.lease_no) as leases,
        array_agg(e.token) as tokens, array_agg(e.status) as statuses,
        array_agg(e.error) as errors, array_agg(e.retry_at) as retries,
        array_agg(e.entry::integer) as numbers, array_agg(null::bigint) as nulls
    into v_entries
    from (
        select u.*, l.lease_no, l.token, l.status, l.error, l.retry_at,
            row_number() over (order by u.partition_id, u.group_name, u.place) as entry
        from unnest(v_under.places, v_under.partitions, v_under.groups, v_under.seqs)
            as u (place, partition_id, group_name, seq)
        join unnest(p_leases, p_tokens,
                case when cardinality(p_statuses) > 1 then p_statuses
                    else array_fill(p_statuses[1], array[cardinality(p_leases)]) end,
                case when cardinality(p_errors) > 1 then p_errors
                    else array_fill(p_errors[1], array[cardinality(p_leases)]) end,
                case when cardinality(p_retries) > 1 then p_retries
                    else array_fill(p_retries[1], array[cardinality(p_leases)]) end)
            with ordinality as l (lease_no, token, status, error, retry_at, place)
            on l.place = u.place
        where u.seq is null
        order by u.partition_id, u.group_name, u.place
    ) as e;
    if v_entries.places is not null then
        return query
        select v_entries.places[a.entry], v_entries.partitions[a.entry], null::bigint,
            a.faults[1], coalesce(a.died[1], 0), a.counts[1], a.released[1]
        from monarq.ack_messages(v_now, v_entries.partitions, v_entries.groups, v_entries.leases,
            v_entries.tokens, v_entries.numbers, v_entries.nulls, v_entries.nulls, null,
            v_entries.statuses, v_entries.errors, v_entries.retries) as a;
    end if;
    return query
    select u.place, u.partition_id, u.seq, null::text, 0, 0, false
    from unnest(v_under.places, v_under.partitions, v_under.seqs) as u (place, partition_id, seq)
    where u.seq is not null;
end
$$;

-- Moves deadlines on; a new deadline, or a fault, for each lease. p_commands: whether each caller may
-- work on shell commands (null: all may).
create or replace function monarq.renew(
    p_now bigint, p_leases bigint[], p_tokens text[], p_durations bigint[], p_commands boolean[]
) returns table (place integer, expires_at bigint, fault text)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_cursors record;
    v_items record;
begin
    select array_agg(c.ctid) as rows, array_agg(c.lease_no) as leases,
        array_agg(c.lease_token) as tokens into v_cursors
    from (
        select ctid, lease_no, lease_token from monarq.cursors where lease_no = any (p_leases)
        order by partition_id, group_id for update
    ) as c;
    select array_agg(i.ctid) as rows, array_agg(i.lease_no) as leases,
        array_agg(i.lease_token) as tokens, array_agg(i.is_command) as commands into v_items
    from (
        select ctid, lease_no, lease_token, is_command from monarq.items where lease_no = any (p_leases)
        order by partition_id, seq for update
    ) as i;
    return query
    with asked as (
        select r.place, r.lease_no, r.token, v_now + r.duration as until,
            r.may is false and exists (
                select from unnest(v_items.leases, v_items.tokens, v_items.commands)
                    as l (lease_no, token, is_command)
                where l.lease_no = r.lease_no and l.token = r.token and l.is_command
            ) as forbidden
        from unnest(p_leases, p_tokens, p_durations, p_commands) with ordinality
            as r (lease_no, token, duration, may, place)
    ), cursors as (
        update monarq.cursors c
        set lease_until = greatest(c.lease_until, n.until),
            available_at = greatest(c.lease_until, n.until)
        from (
            select l.ctid, max(a.until) as until
            from unnest(v_cursors.rows, v_cursors.leases, v_cursors.tokens)
                as l (ctid, lease_no, token)
            join asked a on a.lease_no = l.lease_no and a.token = l.token group by l.ctid
        ) as n
        where c.ctid = n.ctid and c.lease_until > v_now
        returning c.lease_no, c.lease_token as token, c.lease_until as until
    ), items as (
        update monarq.items i set due_at = greatest(i.due_at, n.until)
        from (
            select l.ctid, max(a.until) as until
            from unnest(v_items.rows, v_items.leases, v_items.tokens)
                as l (ctid, lease_no, token)
            join asked a on a.lease_no = l.lease_no and a.token = l.token and not a.forbidden
            group by l.ctid
        ) as n
        where i.ctid = n.ctid and i.due_at > v_now and i.state = 'leased'
        returning i.lease_no, i.lease_token as token, i.due_at as until
    ), renewed as (
        select r.lease_no, r.token, max(r.until) as until
        from (select * from cursors union all select * from items) as r group by 1, 2
    )
    select a.place::integer, r.until, case when a.forbidden then 'forbidden'
        when r.until is null then case when exists (select from monarq.cursors c
                where c.lease_no = a.lease_no and c.lease_token = a.token)
            or exists (select from monarq.items i
                where i.lease_no = a.lease_no and i.lease_token = a.token)
        then 'lease_expired' else 'lease_unknown' end end
    from asked a left join renewed r on r.lease_no = a.lease_no and r.token = a.token;
end
$$;

-- The logs: the minutes of the counters, and the removal of what is old.

-- Counters of every queue at the turn of a minute, where they changed since the last one.
create or replace function monarq.roll_up(p_now bigint) returns void
    language plpgsql
as $$
declare
    v_minute bigint := p_now - p_now % (60 * 1000000);
begin
    perform 1 from monarq.rollups where at < v_minute for update skip locked;
    if not found then
        return;
    end if;
    update monarq.rollups set at = v_minute;
    insert into monarq.metrics (at, queue_id, pushed, completed, failed, dead, pending)
    select v_minute, q.id, s.pushed, s.completed, s.failed, s.dead, monarq.pending(q)
    from monarq.queues q
    cross join lateral (
        select coalesce(sum(c.pushed), 0) as pushed, coalesce(sum(c.completed), 0) as completed,
            coalesce(sum(c.failed), 0) as failed, coalesce(sum(c.dead), 0) as dead
        from monarq.counters c where c.queue_id = q.id
    ) as s
    left join lateral (
        select * from monarq.metrics m where m.queue_id = q.id order by m.at desc limit 1
    ) as before on true
    where (s.pushed, s.completed, s.failed, s.dead)
        is distinct from (before.pushed, before.completed, before.failed, before.dead)
    on conflict do nothing;
end
$$;

-- Old rows of the logs; ids rise with time, so the oldest are the first.
create or replace function monarq.trim_logs(p_now bigint, p_limit integer) returns bigint
    language plpgsql
as $$
declare
    v_week constant bigint := 7 * 86400 * 1000000::bigint;
    v_removed bigint := 0;
    v_count bigint;
begin
    delete from monarq.deliveries where id in (
        select id from (select id, ended_at from monarq.deliveries order by id limit p_limit) as o
        where ended_at <= p_now - v_week);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.attempts where id in (
        select o.id from (select * from monarq.attempts order by id limit p_limit) as o
        where o.ended_at <= p_now - v_week and not exists (
            select from monarq.items i where i.partition_id = o.partition_id and i.seq = o.seq));
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    with gone as (
        delete from monarq.traces where id in (
            select id from (select id, created_at from monarq.traces order by id limit p_limit) as o
            where created_at <= p_now - v_week)
        returning id, names
    )
    delete from monarq.trace_names n using gone cross join lateral unnest(gone.names) as old (name)
        where n.name = old.name and n.trace_id = gone.id;
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.metrics where (queue_id, at) in (
        select queue_id, at from monarq.metrics where at <= p_now - 30 * v_week / 7
        order by at limit p_limit);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.push_marks where mark in (
        select mark from monarq.push_marks where pushed_at <= p_now - v_week / 7
        order by pushed_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.ended_leases where (partition_id, group_name) in (
        select partition_id, group_name from monarq.ended_leases
        where ended_at <= p_now - v_week order by ended_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.deleted_groups where id in (
        select id from monarq.deleted_groups where deleted_at <= p_now - v_week
        order by deleted_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.outputs where (partition_id, seq, attempt, start) in (
        select partition_id, seq, attempt, start from monarq.outputs
        where written_at <= p_now - v_week order by written_at limit p_limit
        for update skip locked);
    get diagnostics v_count = row_count;
    v_removed := v_removed + v_count;
    delete from monarq.records where (kind, key) in (
        select kind, key from monarq.records where expires_at <= p_now
        order by expires_at limit p_limit for update skip locked);
    get diagnostics v_count = row_count;
    return v_removed + v_count;
end
$$;

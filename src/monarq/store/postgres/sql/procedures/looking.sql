-- Looking at queues and groups, as procedures for the sake of their settings (see tuning.sql).

-- Queues by their names.
create or replace function monarq.find_queues(p_names text[]) returns setof monarq.queues
    language sql stable
as $$
    select * from monarq.queues where name = any (p_names)
$$;

-- Partitions of a queue by their names.
create or replace function monarq.find_partitions(p_queue bigint, p_names text[])
    returns table (name text, id bigint)
    language sql stable
as $$
    select p.name, p.id from unnest(p_names) as w (name)
    cross join lateral (
        select name, id from monarq.partitions
        where queue_id = p_queue and name = w.name offset 0
    ) as p
$$;

-- Groups by queue and name.
create or replace function monarq.find_groups(p_queues bigint[], p_names text[])
    returns table (queue_id bigint, name text, id bigint)
    language sql stable
as $$
    select g.queue_id, g.name, g.id from unnest(p_queues, p_names) as w (queue_id, name)
    cross join lateral (
        select * from monarq.groups where queue_id = w.queue_id and name = w.name offset 0
    ) as g
$$;

-- What never changes about partitions.
create or replace function monarq.partition_facts(p_ids bigint[])
    returns table (
        id bigint, name text, queue_id bigint, queue text, kind text, runs_commands boolean
    )
    language sql stable
as $$
    select p.id, p.name, p.queue_id, q.name, q.kind, q.runs_commands from monarq.partitions p
    cross join lateral (
        select name, kind, runs_commands from monarq.queues where id = p.queue_id offset 0
    ) as q
    where p.id = any (p_ids)
$$;

-- The groups of this name in the ordered queues with these labels ('' for any); a null where a
-- queue has none. Noted: whether the group has asked for the labels before.
create or replace function monarq.labelled_groups(p_namespace text, p_task text, p_group text)
    returns table (id bigint, noted boolean)
    language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_noted boolean := exists (
        select from monarq.subscriptions s where s.group_name = p_group and s.queue_name = ''
            and s.namespace = p_namespace and s.task = p_task);
begin
    if p_task <> '' then
        return query
        select (select g.id from monarq.groups g where g.queue_id = q.id and g.name = p_group),
            v_noted
        from monarq.queues q
        where q.kind = 'ordered' and q.task = p_task
            and (p_namespace = '' or q.namespace = p_namespace);
    else
        return query
        select (select g.id from monarq.groups g where g.queue_id = q.id and g.name = p_group),
            v_noted
        from monarq.queues q where q.kind = 'ordered' and q.namespace = p_namespace;
    end if;
end
$$;

-- Queues with their counters: those of these names, or a page of all by name.
create or replace function monarq.describe_queues(
    p_names text[], p_namespace text, p_task text, p_after text, p_limit integer
) returns table (
        queue monarq.queues, pending bigint, partitions bigint, pushed bigint, removed bigint,
        completed bigint, failed bigint, dead bigint, dead_letters bigint, scheduled bigint,
        ready bigint, leased bigint, done bigint, cancelled bigint, dead_items bigint
    )
    language sql stable
as $$
    select page.queue, monarq.pending(page.queue), sums.*
    from (
        -- Apart: one plan serves all, and would read all queues for the few that are asked for.
        (select q as queue from monarq.queues q where q.name = any(p_names))
        union all
        (select q from monarq.queues q
            where p_names is null and p_namespace is null and p_task is null
                and q.name > p_after
            order by q.name limit p_limit)
        union all
        (select q from monarq.queues q
            where p_names is null and (p_namespace is not null or p_task is not null)
                and q.name > p_after
                and (p_namespace is null or q.namespace = p_namespace)
                and (p_task is null or q.task = p_task)
            order by q.name limit p_limit)
    ) as page
    cross join lateral (
        select coalesce(sum(partitions), 0)::bigint, coalesce(sum(pushed), 0)::bigint,
            coalesce(sum(removed), 0)::bigint, coalesce(sum(completed), 0)::bigint,
            coalesce(sum(failed), 0)::bigint, coalesce(sum(dead), 0)::bigint,
            coalesce(sum(dead_letters), 0)::bigint, coalesce(sum(scheduled), 0)::bigint,
            coalesce(sum(ready), 0)::bigint, coalesce(sum(leased), 0)::bigint,
            coalesce(sum(done), 0)::bigint, coalesce(sum(cancelled), 0)::bigint,
            coalesce(sum(dead_items), 0)::bigint
        from monarq.counters where queue_id = (page.queue).id
    ) as sums
    order by (page.queue).name
$$;

-- Groups by queue and name, with their lag in messages and the age of the oldest of these.
create or replace function monarq.list_groups(
    p_now bigint, p_queue text, p_group text, p_after_queue text, p_after text, p_limit integer
) returns table (
        queue text, name text, start_at bigint, created_at bigint, lag bigint, completed bigint,
        failed bigint, dead bigint, age bigint
    )
    language sql stable
as $$
    select page.queue, page.name, page.start_at, page.created_at, sums.*,
        monarq.time(p_now) - oldest.at
    from (
        select q.name as queue, g.* from (
            select id, name from monarq.queues
            where p_queue is null and name >= coalesce(p_after_queue, '')
            union all
            select id, name from monarq.queues where name = p_queue
        ) as q
        cross join lateral (
            (select * from monarq.groups
                where queue_id = q.id and p_group is null
                    and name > case when q.name = p_after_queue then p_after else '' end
                order by name limit p_limit)
            union all
            select * from monarq.groups
            where queue_id = q.id and name = p_group
                and name > case when q.name = p_after_queue then p_after else '' end
        ) as g
        where p_after_queue is null or q.name >= p_after_queue
        order by q.name, g.name limit p_limit
    ) as page
    cross join lateral (
        select (coalesce((
                    select sum(pushed) from monarq.counters
                    where queue_id = page.queue_id and group_id = 0), 0)
                - coalesce(sum(position), 0))::bigint,
            coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint,
            coalesce(sum(dead), 0)::bigint
        from monarq.counters where queue_id = page.queue_id and group_id = page.id
    ) as sums
    cross join lateral (
        select min(s.created_at) as at from monarq.cursors c
        cross join lateral (
            select from monarq.partitions
            where id = c.partition_id and last_seq > c.position offset 0
        ) as p
        cross join lateral (
            select created_at from monarq.segments
            where partition_id = c.partition_id and first_seq <= c.position + 1
            order by first_seq desc limit 1
        ) as s
        where c.group_id = page.id and c.available_at is not null
    ) as oldest
    order by page.queue, page.name
$$;

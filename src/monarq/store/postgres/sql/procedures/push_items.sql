-- Push to work queues: as in push.sql, but each item is a row.

-- t: targets, one a work queue; t_first says which item is its first, t_command whether its items are
-- pushed as shell commands (null: none is). i: the items of all targets,
-- in order; i_at says where in p_data each payload begins, counted from 1, and where the last one
-- ends. A column in which no item has anything is null. Transaction ids are one text, as in
-- push_messages.
create or replace function monarq.push_items(
    p_now bigint, p_mark text, p_after text, p_limited boolean,
    q_id bigint[], q_version bigint[], q_horizon bigint[],
    t_queue integer[], t_partition bigint[], t_names text, t_count integer[], t_first integer[],
    t_command boolean[], p_data bytea, i_at integer[], p_transaction_ids text, i_trace_id text[], i_producer text[],
    i_headers text[], i_priority integer[], i_run_at bigint[], i_delay bigint[],
    i_max_attempts integer[], i_backoff_base float8[], i_attempts integer[], p_own boolean,
    out first_seqs bigint[]
)
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    v_ids text[] := string_to_array(p_transaction_ids, E'\n', '');
    v_turns bigint[];
    v_times bigint[];
begin
    if p_mark is not null then
        perform monarq.keep_mark(v_now, p_mark);
    end if;
    select taken.first_seqs, taken.first_turns, taken.times into first_seqs, v_turns, v_times
    from monarq.take_seqs(v_now, p_limited, q_id, q_version, q_horizon, t_queue, t_partition,
        t_names, t_count) as taken;
    if p_after is not null then
        perform monarq.check_after(p_after);
    end if;
    if v_ids is not null then
        perform monarq.note_transaction_ids(t_partition, first_seqs, t_first, v_ids, p_own);
    end if;
    if p_limited then
        perform monarq.check_sizes(q_id, t_queue, t_count);
    end if;

    -- One look at the queue for each target, and then its items: most calls have one target. The
    -- items come from a select list and not from `from unnest(...)`, which would write each column
    -- down before the first row.
    insert into monarq.items (partition_id, seq, queue_id, state, priority, rank, turn, due_at,
        expires_at, max_attempts, backoff_base, attempts, created_at, is_command, payload, transaction_id,
        trace_id, producer, headers)
    select t.partition_id, t.seq + i.place, q.id,
        case when run.at > v_now then 'scheduled' else 'ready' end,
        coalesce(i.priority, q.default_priority),
        t.seq + i.place - coalesce(i.priority, q.default_priority), t.turn + i.place,
        case when run.at > v_now then run.at end, t.at + q.expires_after,
        coalesce(i.max_attempts, q.max_attempts), coalesce(i.backoff_base, q.backoff_base),
        coalesce(i.attempts, 0),
        t.at, t.command and q.runs_commands, substr(p_data, i.at, i.next - i.at), i.transaction_id, i.trace_id, i.producer, i.headers
    from (
        select partition_id, coalesce(queue, 1) as queue, first, first + count - 1 as last,
            first_seq - 1 as seq, first_turn - 1 as turn, at, coalesce(command, false) as command
        from unnest(t_partition, t_queue, t_first, t_count, first_seqs, v_turns, v_times, t_command)
            as t (partition_id, queue, first, count, first_seq, first_turn, at, command)
    ) as t
    cross join lateral (
        select id, default_priority, max_attempts, backoff_base, runs_commands,
            case when expire_timeout > 0 then (expire_timeout * 1000000)::bigint end
                as expires_after
        from monarq.queues where id = q_id[t.queue] offset 0
    ) as q
    cross join lateral (
        select generate_series(1, t.last - t.first + 1) as place,
            unnest(i_at[t.first : t.last]) as at,
            unnest(i_at[t.first + 1 : t.last + 1]) as next,
            unnest(v_ids[t.first : t.last]) as transaction_id,
            unnest(i_trace_id[t.first : t.last]) as trace_id,
            unnest(i_producer[t.first : t.last]) as producer,
            unnest(i_headers[t.first : t.last]) as headers,
            unnest(i_priority[t.first : t.last]) as priority,
            unnest(i_run_at[t.first : t.last]) as run_at,
            unnest(i_delay[t.first : t.last]) as delay,
            unnest(i_max_attempts[t.first : t.last]) as max_attempts,
            unnest(i_backoff_base[t.first : t.last]) as backoff_base,
            unnest(i_attempts[t.first : t.last]) as attempts
    ) as i
    cross join lateral (select coalesce(i.run_at, v_now + i.delay) as at) as run;

    insert into monarq.counters as c (queue_id, group_id, shard, pushed, scheduled, ready)
    select q_id[coalesce(t.queue, 1)], 0, monarq.shard(), t.count, later.count,
        t.count - later.count
    from unnest(t_queue, t_first, t_count) as t (queue, first, count)
    cross join lateral (
        select count(*) from unnest(i_run_at[t.first : t.first + t.count - 1],
                i_delay[t.first : t.first + t.count - 1]) as i (run_at, delay)
        where coalesce(i.run_at, v_now + i.delay) > v_now
    ) as later
    order by 1
    on conflict (queue_id, group_id, shard) do update set
        pushed = c.pushed + excluded.pushed,
        scheduled = c.scheduled + excluded.scheduled,
        ready = c.ready + excluded.ready;
end
$$;

-- Dead letters: back into a queue, or away.

-- Removes dead letters, and the items that they are of.
create or replace function monarq.drop_letters(p_ids bigint[]) returns bigint
    language plpgsql
as $$
declare
    d record;
    v_count bigint;
begin
    for d in
        select queue_id, partition_id, array_agg(seq) filter (where is_item) as items,
            count(*) as letters
        from monarq.dead_letters where id = any (p_ids) group by queue_id, partition_id
        order by queue_id, partition_id
    loop
        if d.items is not null then
            perform monarq.remove_items(d.partition_id, d.items);
            perform monarq.tally_items(d.queue_id, dead => -cardinality(d.items));
            perform monarq.tally(d.queue_id, 0, removed => cardinality(d.items));
        end if;
        perform monarq.tally(d.queue_id, 0, dead_letters => -d.letters);
    end loop;
    delete from monarq.dead_letters where id = any (p_ids);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

-- Puts locked dead letters back, oldest first: into the queue p_to, or (null) where they came from.
create or replace function monarq.redrive(p_now bigint, p_ids bigint[], p_to bigint) returns void
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    d monarq.dead_letters;
    q monarq.queues;
    v_headers text;
    v_seq bigint;
    v_partition bigint;
    v_home boolean;
begin
    for d in select * from monarq.dead_letters where id = any (p_ids) order by id loop
        select * into q from monarq.queues where id = coalesce(p_to, d.queue_id);
        v_home := q.id = d.queue_id;
        if v_home and d.is_item then
            perform monarq.restart_items(v_now, d.partition_id, array[d.seq]);
            continue;
        end if;
        v_headers := monarq.with_fields(d.headers,
            json_build_object('monarqRedrivenFrom', d.transaction_id)::text);
        if q.kind = 'work' then
            perform monarq.append_item(v_now, q, coalesce(
                (select priority from monarq.items i
                 where i.partition_id = d.partition_id and i.seq = d.seq), q.default_priority),
                d.payload, null, d.trace_id, d.producer, v_headers, coalesce(
                    (select is_command from monarq.items i
                     where i.partition_id = d.partition_id and i.seq = d.seq), false));
        else
            v_seq := monarq.append(v_now, q.id, d.partition_name, d.payload, null, d.trace_id,
                d.producer, v_headers);
            if v_home then
                select id into v_partition from monarq.partitions
                    where queue_id = q.id and name = d.partition_name;
                update monarq.segments set for_group = d.group_name
                    where partition_id = v_partition and first_seq = v_seq;
                perform monarq.withhold(v_now, q.id, v_partition, v_seq, d.group_name);
            end if;
        end if;
        perform monarq.drop_letters(array[d.id]);
    end loop;
end
$$;

-- Keeps a message from all groups but one, as if they had acked it.
create or replace function monarq.withhold(
    p_now bigint, p_queue bigint, p_partition bigint, p_seq bigint, p_except text
) returns void
    language plpgsql
as $$
declare
    c monarq.cursors;
begin
    for c in
        select mc.* from monarq.cursors mc join monarq.groups g on g.id = mc.group_id
        where mc.partition_id = p_partition and g.name <> p_except
        order by mc.group_id for update of mc
    loop
        insert into monarq.unresolved (partition_id, group_id, seq, acked)
        values (p_partition, c.group_id, p_seq, true);
        c := monarq.advance(p_queue, p_partition, c.group_id);
        if c.lease_no is null and monarq.is_drained(p_partition, c.position) then
            update monarq.cursors set available_at = null
                where partition_id = p_partition and group_id = c.group_id;
        end if;
    end loop;
end
$$;

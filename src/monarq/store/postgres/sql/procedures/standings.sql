-- For those who watch: finding a place in the delivery log, and skipping a message.

-- The first row of the delivery log that ended at this time or later; the one behind the last, if
-- there is none. Rows are written in the order of time, but for those of calls at the same time.
create or replace function monarq.first_logged(p_time bigint) returns bigint
    language plpgsql stable
as $$
declare
    v_low bigint;
    v_high bigint;
    v_middle bigint;
    d record;
begin
    select coalesce(min(id), 1), coalesce(max(id), 0) + 1 into v_low, v_high
        from monarq.deliveries;
    while v_low < v_high loop
        v_middle := (v_low + v_high) / 2;
        select id, ended_at into d from monarq.deliveries
            where id >= v_middle order by id limit 1;
        if d.id is null or d.ended_at >= p_time then
            v_high := v_middle;
        else
            v_low := d.id + 1;
        end if;
    end loop;
    return v_low;
end
$$;

-- Makes the next message of a partition dead for a group; a lease there ends. Answers what is
-- before the group then, or null if another message is next.
create or replace function monarq.skip(
    p_now bigint, p_queue bigint, p_partition bigint, p_group bigint, p_seq bigint, p_error text
) returns bigint
    language plpgsql
as $$
declare
    v_now bigint := monarq.time(p_now);
    q monarq.queues;
    c monarq.cursors;
    v_attempts integer;
    v_last bigint;
begin
    select * into q from monarq.queues where id = p_queue;
    perform monarq.make_cursors_in(v_now, p_queue, p_partition);
    select * into c from monarq.cursors
        where partition_id = p_partition and group_id = p_group for update;
    if c.lease_until <= v_now then
        c := monarq.settle(v_now, q, p_partition, p_group);
    end if;
    select last_seq into v_last from monarq.partitions where id = p_partition;
    if c.position is null or c.position + 1 <> p_seq or p_seq > v_last then
        return null;
    end if;
    select attempts into v_attempts from monarq.unresolved
        where partition_id = p_partition and group_id = p_group and seq = p_seq;
    perform monarq.bury(v_now, q, p_partition, p_group, array[p_seq],
        array[coalesce(v_attempts, 0)], array[p_error]);
    c := monarq.advance(q.id, p_partition, p_group);
    update monarq.cursors set
        ended_lease_no = coalesce(lease_no, ended_lease_no),
        ended_answered = lease_no is null and ended_answered,
        lost_before_no = case when lease_no is null then lost_before_no else lost_lease_no end,
        lost_lease_no = greatest(lost_lease_no, lease_no),
        lease_no = null, lease_until = null, leased_at = null, lease_to = null, lease_left = 0,
        consumer = null,
        available_at = case when monarq.is_drained(p_partition, c.position) then null
            else greatest(v_now, (
                select u.retry_at from monarq.unresolved u
                where u.partition_id = p_partition and u.group_id = p_group
                    and u.seq = c.position + 1)) end
        where partition_id = p_partition and group_id = p_group;
    return v_last - c.position;
end
$$;

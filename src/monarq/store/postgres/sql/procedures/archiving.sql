-- Up to where partitions are archived.

-- Notes it for partitions of a queue, never further back than it was; what has gone meanwhile is
-- passed over. Answers the first partition that has no message with its seq yet, if there is one.
create or replace function monarq.set_archived(
    p_now bigint, p_queue bigint, p_partitions bigint[], p_seqs bigint[]
) returns bigint
    language plpgsql
as $$
declare
    v_wrong bigint;
begin
    -- In the order in which everybody locks them.
    perform 1 from monarq.partitions where queue_id = p_queue and id = any (p_partitions)
        order by id for update;
    select p.id into v_wrong from unnest(p_partitions, p_seqs) as a (id, seq)
        join monarq.partitions p on p.id = a.id and p.queue_id = p_queue
        where a.seq > p.last_seq order by p.id limit 1;
    if v_wrong is not null then
        return v_wrong;
    end if;
    update monarq.partitions p set archived_seq = a.seq, check_at = least(p.check_at, p_now)
        from unnest(p_partitions, p_seqs) as a (id, seq)
        where p.id = a.id and p.queue_id = p_queue and a.seq > p.archived_seq;
    return null;
end
$$;

-- Stores what an attempt printed, p_size bytes (more in p_data if they are sealed). Returns how many
-- bytes the attempt has printed, or would have if that is more than p_most; null if there is no
-- such item; p_unsealed, and stores nothing, if the queue is encrypted and the bytes are not
-- sealed. The row of the item orders those who append at the same time.
create or replace function monarq.append_output(
    p_now bigint, p_partition bigint, p_seq bigint, p_attempt integer, p_data bytea,
    p_size integer, p_sealed boolean, p_most integer, p_unsealed integer
) returns integer
    language plpgsql
as $$
declare
    v_size integer;
begin
    perform 1 from monarq.items where partition_id = p_partition and seq = p_seq
        for no key update;
    if not found then
        return null;
    end if;
    if not p_sealed and exists (
        select from monarq.partitions p join monarq.queues q on q.id = p.queue_id
        where p.id = p_partition and q.encryption_enabled
    ) then
        return p_unsealed;
    end if;
    select coalesce(max(start + length(data) - case when sealed then 33 else 0 end), 0)
        into v_size from monarq.outputs
        where partition_id = p_partition and seq = p_seq and attempt = p_attempt;
    if p_size > 0 and v_size + p_size <= p_most then
        insert into monarq.outputs (partition_id, seq, attempt, start, data, written_at, sealed)
        values (p_partition, p_seq, p_attempt, v_size, p_data, monarq.time(p_now), p_sealed);
    end if;
    return v_size + p_size;
end
$$;

-- Notes what an attempt printed; how many bytes that makes, or would make if it is too much.
-- Null if there is no such item. Its row orders those who append at the same time.
create or replace function monarq.append_output(
    p_now bigint, p_partition bigint, p_seq bigint, p_attempt integer, p_data bytea, p_most integer
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
    select coalesce(max(start + length(data)), 0) into v_size from monarq.outputs
        where partition_id = p_partition and seq = p_seq and attempt = p_attempt;
    if length(p_data) > 0 and v_size + length(p_data) <= p_most then
        insert into monarq.outputs (partition_id, seq, attempt, start, data, written_at)
            values (p_partition, p_seq, p_attempt, v_size, p_data, monarq.time(p_now));
    end if;
    return v_size + length(p_data);
end
$$;

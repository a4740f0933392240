-- How many bytes messages have, and for how many of them there is room.

-- How many bytes the segments hold that these messages are in; no fewer than the messages have.
create or replace function monarq.bytes_around(p_partition bigint, p_first bigint, p_last bigint)
    returns bigint
    language sql stable
as $$
    select sum(octet_length(data)) from monarq.segments
    where partition_id = p_partition and first_seq <= p_last
        and first_seq >= (
            select max(first_seq) from monarq.segments
            where partition_id = p_partition and first_seq <= p_first)
$$;

-- How many bytes these messages have.
create or replace function monarq.bytes_of(p_partition bigint, p_first bigint, p_last bigint)
    returns bigint
    language sql stable
as $$
    select sum(case when first_seq >= p_first and first_seq + count - 1 <= p_last
        then octet_length(data)
        else monarq.offset_at(offsets, least(p_last - first_seq + 1, count)::integer)
            - monarq.offset_at(offsets, greatest(p_first - first_seq, 0)::integer) end)
    from monarq.segments
    where partition_id = p_partition and first_seq <= p_last
        and first_seq >= (
            select max(first_seq) from monarq.segments
            where partition_id = p_partition and first_seq <= p_first)
$$;

-- How many bytes each of these messages has, in order of their seqs.
create or replace function monarq.message_sizes(
    p_partition bigint, p_first bigint, p_last bigint
) returns table (seq bigint, bytes integer)
    language sql stable
as $$
    select s.first_seq + i,
        monarq.offset_at(s.offsets, i) - monarq.offset_at(s.offsets, i - 1)
    from (
        -- A copy of the offsets, read once and not once for each message.
        select first_seq - 1 as first_seq, count, offsets || ''::bytea as offsets
        from monarq.segments
        where partition_id = p_partition and first_seq <= p_last
            and first_seq >= (
                select max(first_seq) from monarq.segments
                where partition_id = p_partition and first_seq <= p_first)
        order by first_seq offset 0
    ) as s
    cross join lateral generate_series(
        greatest(p_first - s.first_seq, 1)::integer,
        least(p_last - s.first_seq, s.count)::integer) as i
$$;

-- The last of these messages up to which there is room for all; the one before the first, if
-- there is none for that.
create or replace function monarq.last_with_room(
    p_partition bigint, p_first bigint, p_last bigint, p_bytes bigint
) returns bigint
    language plpgsql stable
as $$
declare
    m record;
    v_left bigint := p_bytes;
begin
    for m in select * from monarq.message_sizes(p_partition, p_first, p_last) loop
        v_left := v_left - m.bytes;
        if v_left < 0 then
            return m.seq - 1;
        end if;
    end loop;
    return p_last;
end
$$;

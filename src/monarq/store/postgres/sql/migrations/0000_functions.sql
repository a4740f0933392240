-- What the tables' definitions need.

-- The i-th (from 0) of the little-endian int32 numbers in a bytea.
create function monarq.offset_at(p_offsets bytea, p_index integer) returns integer
    language sql immutable strict parallel safe
as $$
    select get_byte(p_offsets, 4 * p_index)
        | (get_byte(p_offsets, 4 * p_index + 1) << 8)
        | (get_byte(p_offsets, 4 * p_index + 2) << 16)
        | (get_byte(p_offsets, 4 * p_index + 3) << 24)
$$;

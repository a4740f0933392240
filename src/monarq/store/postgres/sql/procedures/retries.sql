-- The delay before a failed message or item is delivered again, in microseconds. The same formula
-- as model/retries.py: p_delay milliseconds if that is not null, else p_base ^ p_attempts seconds;
-- at most p_cap seconds, at most ten years, and the fraction p_jitter of it on top.
create or replace function monarq.retry_delay(
    p_attempts integer, p_delay float8, p_base float8, p_cap float8, p_jitter float8
) returns bigint
    language sql immutable parallel safe
as $$
    select round(1000000 * (1 + coalesce(p_jitter, 0)) * least(p_cap, 315360000, case
        when p_delay is not null then p_delay / 1000
        when p_base is null then 0
        -- A number to the power of 0 is 1, and 0 has no logarithm.
        when p_attempts = 0 then 1
        when p_base <= 0 then 0
        -- By logarithms first: the power itself may be too large or too small for a number.
        when p_attempts * ln(p_base) < -30 then 0
        when p_attempts * ln(p_base) > 20 then 315360000
        else power(p_base, p_attempts) end))::bigint
$$;

-- The highest number of a lease of the cursor that ended otherwise than with everything answered. All
-- that was under a lease with a higher one has its answer. Of those before this, nobody knows.
lock table monarq.cursors;
do $$
begin
    execute format('alter table monarq.cursors add column lost_lease_no bigint not null default %s',
        (select last_value from monarq.lease_numbers));
end $$;
alter table monarq.cursors alter column lost_lease_no set default 0;

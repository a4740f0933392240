-- The highest number of a lease of the cursor that ended otherwise than with everything answered. All
-- that was under a lease with a higher one has its answer. Of those before this, nobody knows.
alter table cursors add column lost_lease_no integer not null default 0;
update cursors set lost_lease_no = (select last from lease_numbers);

-- The lost lease before the last one (see lost_lease_no): leases between these two were answered, too.
-- Null: nobody knows of any lease before the last lost one.
alter table monarq.cursors add column lost_before_no bigint;

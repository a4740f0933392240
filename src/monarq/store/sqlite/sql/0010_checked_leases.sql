-- When the lifecycle has to look whether the lease has run out: not later than that. It stays when
-- the lease ends, so that a partition which is popped all the time does not move it each time.
alter table cursors add column check_at integer;
update cursors set check_at = lease_until where lease_until is not null;
drop index cursors_expiring;
create index cursors_to_check on cursors (check_at) where check_at is not null;

-- The id of a lease on one partition says which cursor it is of. Only those on several, and those
-- from before this, are looked for by their number.
alter table cursors add column lease_spread integer not null default 0;
update cursors set lease_spread = 1 where lease_until is not null;
drop index cursors_leased;
create index cursors_leased on cursors (lease_no)
    where lease_spread = 1 and lease_until is not null;

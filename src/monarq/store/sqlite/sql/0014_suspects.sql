-- Whether the lease was over a single message: only then does its expiry count as a delivery. Leases
-- from before this was noted count for none of their messages.
alter table cursors add column lease_of_one integer not null default 0;
-- Of a message whose lease expired: how many messages a lease with it may cover. Null: any number.
alter table unresolved add column lease_limit integer;

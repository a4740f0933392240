-- Whether the lease is over a single message: only then does its expiry count as a delivery. Leases from
-- before this was noted count for none of their messages.
alter table monarq.cursors add column lease_of_one boolean not null default false;
-- Of a message whose lease expired: how many messages a lease with it may cover. Null: any number.
alter table monarq.unresolved add column lease_limit integer;

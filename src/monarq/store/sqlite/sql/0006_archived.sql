-- Whether retention waits for the archive, and up to which seq a partition is in it.
alter table queues add column retain_until_archived integer not null default 0;
alter table partitions add column archived_seq integer not null default 0;

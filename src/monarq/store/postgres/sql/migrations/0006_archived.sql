-- Whether retention waits for the archive, and up to which seq a partition is in it.
alter table monarq.queues add column retain_until_archived boolean not null default false;
alter table monarq.partitions add column archived_seq bigint not null default 0;

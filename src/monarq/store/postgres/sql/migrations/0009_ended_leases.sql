-- The last leases of groups that were deleted, so that a late ack is told what became of its own.
create table monarq.ended_leases (
    partition_id bigint not null,
    group_name text collate "C" not null,
    lease_no bigint not null,
    lease_token text not null,
    answered boolean not null,
    ended_at bigint not null,
    primary key (partition_id, group_name)
);
create index on monarq.ended_leases (ended_at);

-- The names of groups that were deleted, for what the log of deliveries still says of them.
create table monarq.deleted_groups (
    id bigint primary key,
    name text collate "C" not null,
    deleted_at bigint not null
);
create index on monarq.deleted_groups (deleted_at);

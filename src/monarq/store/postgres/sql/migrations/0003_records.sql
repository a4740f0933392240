-- Workers, schedules, runs: what is known by a name.
create table monarq.records (
    kind text collate "C" not null,
    key text collate "C" not null,
    value bytea not null,
    updated_at bigint not null,
    expires_at bigint,
    primary key (kind, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index on monarq.records (expires_at) where expires_at is not null;

-- What running attempts print, as it comes.
create table monarq.outputs (
    partition_id bigint not null,
    seq bigint not null,
    attempt integer not null,
    start integer not null,
    data bytea not null,
    written_at bigint not null,
    primary key (partition_id, seq, attempt, start)
);
create index on monarq.outputs (written_at);

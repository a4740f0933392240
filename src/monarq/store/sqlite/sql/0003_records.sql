-- Workers, schedules, runs: what is known by a name.
create table records (
    kind text not null,
    key text not null,
    value blob not null,
    updated_at integer not null,
    expires_at integer,
    primary key (kind, key)
) strict, without rowid;
create index records_to_remove on records (expires_at) where expires_at is not null;

-- What running attempts print, as it comes.
create table outputs (
    partition_id integer not null,
    seq integer not null,
    attempt integer not null,
    start integer not null,
    data blob not null,
    written_at integer not null,
    primary key (partition_id, seq, attempt, start)
) strict;
create index outputs_by_time on outputs (written_at);

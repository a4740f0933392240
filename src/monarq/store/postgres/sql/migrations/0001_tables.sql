-- All tables. Times are microseconds since the epoch; names sort by their bytes.

create table monarq.queues (
    id bigint generated always as identity primary key,
    name text collate "C" not null unique,
    kind text not null check (kind in ('ordered', 'work')),
    namespace text collate "C" not null,
    task text collate "C" not null,
    paused boolean not null default false,
    version integer not null default 1,
    created_at bigint not null,
    lease_time double precision not null,
    retention_enabled boolean not null,
    retention_seconds double precision not null,
    completed_retention_seconds double precision not null,
    max_size bigint not null,
    encryption_enabled boolean not null,
    priority integer not null,
    dead_queue text collate "C" not null,
    retry_limit integer not null,
    retry_delay bigint not null,
    delayed_processing double precision not null,
    window_buffer double precision not null,
    max_wait_time_seconds double precision not null,
    dead_letter_queue boolean not null,
    dlq_after_max_retries boolean not null,
    max_attempts integer not null,
    backoff_base double precision not null,
    backoff_cap double precision not null,
    backoff_jitter double precision not null,
    expire_timeout double precision not null,
    default_priority integer not null
);
create index on monarq.queues (namespace);
create index on monarq.queues (task);
create index on monarq.queues (dead_queue) where dead_queue <> '';

create table monarq.partitions (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    name text collate "C" not null,
    -- What is kept is first_seq to last_seq; first_seq is last_seq + 1 if nothing is.
    first_seq bigint not null default 1,
    last_seq bigint not null default 0,
    last_at bigint not null,
    -- Work queues: how many turns were given out (see docs/model.md).
    turns bigint not null default 0,
    -- When the lifecycle has to look at this partition: eviction, retention, removal.
    check_at bigint not null,
    unique (queue_id, name)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
create index on monarq.partitions (check_at);

-- The messages of one push to one partition. Payload i (from 0) lies in data between offset
-- i and i + 1; offsets are little-endian int32, n + 1 of them. Both uncompressed, so that a
-- slice reads only the pages it needs.
create table monarq.segments (
    partition_id bigint not null,
    first_seq bigint not null,
    count integer not null,
    created_at bigint not null,
    -- How many payloads were emptied; for whom alone it is, if not for every group.
    deleted integer not null default 0,
    for_group text collate "C",
    data bytea not null,
    offsets bytea not null,
    transaction_ids text[],
    trace_ids text[],
    producers text[],
    headers text[],
    primary key (partition_id, first_seq)
) with (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_scale_factor = 0.05);
alter table monarq.segments
    alter column data set storage external,
    alter column offsets set storage external;
create index on monarq.segments (partition_id, first_seq)
    where deleted > 0 or for_group is not null;

-- Only ids that callers gave; the others follow from partition and seq.
create table monarq.transaction_ids (
    partition_id bigint not null,
    transaction_id text collate "C" not null,
    seq bigint not null,
    primary key (partition_id, transaction_id) include (seq)
) with (autovacuum_vacuum_scale_factor = 0.05);

-- Where a group asked to begin; also for queues that do not exist yet. '' means any.
create table monarq.subscriptions (
    group_name text collate "C" not null,
    queue_name text collate "C" not null,
    namespace text collate "C" not null,
    task text collate "C" not null,
    start_at bigint not null,
    primary key (group_name, queue_name, namespace, task)
);

create table monarq.groups (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    name text collate "C" not null,
    start_at bigint not null,
    created_at bigint not null,
    unique (queue_id, name)
);
create index on monarq.groups (name);

create sequence monarq.lease_numbers;

create table monarq.cursors (
    partition_id bigint not null,
    group_id bigint not null,
    position bigint not null,
    -- From when on it can be popped: ready, end of the lease or of a delay. Null: drained.
    available_at bigint,
    lease_no bigint,
    -- Of the lease, or, if there is none, of the one that ended last.
    lease_token text,
    lease_until bigint,
    leased_at bigint,
    lease_to bigint,
    -- Messages under the lease that have no answer yet.
    lease_left integer not null default 0,
    consumer text,
    ended_lease_no bigint,
    ended_answered boolean not null default false,
    has_unresolved boolean not null default false,
    primary key (partition_id, group_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
-- Exactly what can be popped, in the order in which it is.
create index cursors_available on monarq.cursors (group_id, available_at, partition_id)
    where available_at is not null;
create index cursors_lease on monarq.cursors (lease_no) where lease_no is not null;
create index cursors_expiring on monarq.cursors (lease_until) where lease_until is not null;

-- Messages behind a cursor that are not simply undelivered: acked ahead of others, failed or
-- expired before, deleted.
create table monarq.unresolved (
    partition_id bigint not null,
    group_id bigint not null,
    seq bigint not null,
    attempts integer not null default 0,
    acked boolean not null default false,
    answered_lease_no bigint,
    retry_at bigint,
    error text,
    primary key (partition_id, group_id, seq)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table monarq.items (
    partition_id bigint not null,
    seq bigint not null,
    queue_id bigint not null,
    state text not null,
    priority integer not null,
    -- While ready, the order of delivery is (rank, turn); otherwise waited holds the age.
    rank bigint not null,
    turn bigint not null,
    waited bigint not null default 0,
    -- Scheduled: the run time; leased: the deadline; null otherwise.
    due_at bigint,
    expires_at bigint,
    attempts integer not null default 0,
    max_attempts integer not null,
    backoff_base double precision not null,
    lease_no bigint,
    lease_token text,
    leased_at bigint,
    consumer text,
    ended_lease_no bigint,
    ended_answered boolean not null default false,
    created_at bigint not null,
    finished_at bigint,
    payload bytea not null,
    transaction_id text collate "C",
    trace_id text,
    producer text,
    headers text,
    error text,
    primary key (partition_id, seq)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
create index items_ready on monarq.items (partition_id, rank, turn) where state = 'ready';
-- Not by state, so that no other index could seem as good for what is due.
create index items_due on monarq.items (partition_id, due_at) where due_at is not null;
create index items_due_anywhere on monarq.items (due_at) where due_at is not null;
create index items_expiring on monarq.items (partition_id, expires_at)
    where state in ('ready', 'scheduled') and expires_at is not null;
create index items_lease on monarq.items (lease_no) where lease_no is not null;
create index items_finished on monarq.items (partition_id, finished_at)
    where state in ('done', 'cancelled');
create index items_by_state on monarq.items (partition_id, state, seq) where state <> 'done';

create table monarq.attempts (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_id bigint not null,
    seq bigint not null,
    attempt integer not null,
    started_at bigint not null,
    ended_at bigint not null,
    outcome text not null,
    consumer text,
    error text,
    result bytea
);
create index on monarq.attempts (partition_id, seq);
create index on monarq.attempts using brin (ended_at);

create table monarq.dead_letters (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_id bigint not null,
    partition_name text collate "C" not null,
    seq bigint not null,
    group_name text collate "C" not null,
    is_item boolean not null,
    transaction_id text collate "C" not null,
    payload bytea not null,
    trace_id text,
    producer text,
    headers text,
    error text not null,
    attempts integer not null,
    created_at bigint not null,
    failed_at bigint not null
);
create index on monarq.dead_letters (queue_id, id);
create index on monarq.dead_letters (partition_id, seq);

create table monarq.deliveries (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_id bigint not null,
    group_id bigint not null,
    consumer text,
    lease_no bigint not null,
    leased_at bigint not null,
    ended_at bigint not null,
    first_seq bigint not null,
    last_seq bigint not null,
    completed integer not null default 0,
    failed integer not null default 0,
    released integer not null default 0,
    dead integer not null default 0,
    expired integer not null default 0,
    error text
);
create index on monarq.deliveries using brin (ended_at);

-- Sums kept as things flow, spread over shards so that concurrent calls do not wait for each
-- other; group_id 0 is the queue itself. A group's lag is pushed less position.
create table monarq.counters (
    queue_id bigint not null,
    group_id bigint not null,
    shard integer not null,
    pushed bigint not null default 0,
    removed bigint not null default 0,
    position bigint not null default 0,
    partitions bigint not null default 0,
    completed bigint not null default 0,
    failed bigint not null default 0,
    dead bigint not null default 0,
    dead_letters bigint not null default 0,
    scheduled bigint not null default 0,
    ready bigint not null default 0,
    leased bigint not null default 0,
    done bigint not null default 0,
    cancelled bigint not null default 0,
    dead_items bigint not null default 0,
    primary key (queue_id, group_id, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

create table monarq.metrics (
    at bigint not null,
    queue_id bigint not null,
    pushed bigint not null,
    completed bigint not null,
    failed bigint not null,
    dead bigint not null,
    pending bigint not null,
    primary key (queue_id, at)
);
create index on monarq.metrics (at);

create table monarq.traces (
    id bigint generated always as identity primary key,
    partition_id bigint not null,
    transaction_id text collate "C" not null,
    event_type text not null,
    data bytea not null,
    names text[] not null,
    created_at bigint not null
);
create index on monarq.traces (partition_id, transaction_id, id);
create index on monarq.traces using brin (created_at);
create table monarq.trace_names (
    name text collate "C" not null,
    trace_id bigint not null,
    primary key (name, trace_id)
);

create table monarq.settings (
    key text collate "C" primary key,
    value text not null
);

-- When metrics were last rolled up; one row.
create table monarq.rollups (at bigint not null);
insert into monarq.rollups values (0);

-- Messages one a row, for people and for SQL. Encrypted and deleted payloads show as null.
create view monarq.messages as
select q.name as queue, p.name as partition, s.partition_id, s.first_seq + i as seq,
       coalesce(s.transaction_ids[i + 1], s.partition_id || '-' || (s.first_seq + i))
           as transaction_id,
       s.trace_ids[i + 1] as trace_id,
       s.producers[i + 1] as producer,
       case when get_byte(body.bytes, 0) <> 1 then convert_from(body.bytes, 'UTF8') end as payload,
       to_timestamp(s.created_at / 1e6) as created_at
from monarq.segments s
join monarq.partitions p on p.id = s.partition_id
join monarq.queues q on q.id = p.queue_id
cross join lateral generate_series(0, s.count - 1) as i
cross join lateral (
    select nullif(substring(s.data from monarq.offset_at(s.offsets, i) + 1
        for monarq.offset_at(s.offsets, i + 1) - monarq.offset_at(s.offsets, i)), '') as bytes
) body;

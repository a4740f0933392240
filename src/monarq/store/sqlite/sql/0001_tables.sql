-- All tables. Times are microseconds since the epoch.

create table queues (
    id integer primary key autoincrement,
    name text not null unique,
    kind text not null check (kind in ('ordered', 'work')),
    namespace text not null,
    task text not null,
    paused integer not null default 0,
    version integer not null default 1,
    created_at integer not null,
    lease_time real not null,
    retention_enabled integer not null,
    retention_seconds real not null,
    completed_retention_seconds real not null,
    max_size integer not null,
    encryption_enabled integer not null,
    priority integer not null,
    dead_queue text not null,
    retry_limit integer not null,
    retry_delay integer not null,
    delayed_processing real not null,
    window_buffer real not null,
    max_wait_time_seconds real not null,
    dead_letter_queue integer not null,
    dlq_after_max_retries integer not null,
    max_attempts integer not null,
    backoff_base real not null,
    backoff_cap real not null,
    backoff_jitter real not null,
    expire_timeout real not null,
    default_priority integer not null
) strict;
create index queues_by_namespace on queues (namespace, task) where kind = 'ordered';
create index queues_by_task on queues (task) where kind = 'ordered';
create index queues_by_dead_queue on queues (dead_queue) where dead_queue <> '';
create index queues_of_work on queues (id) where kind = 'work';

create table partitions (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    -- What is kept is first_seq to last_seq; first_seq is last_seq + 1 if nothing is.
    first_seq integer not null default 1,
    last_seq integer not null default 0,
    last_at integer not null default 0,
    -- Work queues: how many turns were given out.
    turns integer not null default 0,
    -- Ordered queues: when the lifecycle has to look at it for eviction, retention or removal.
    check_at integer,
    -- Whether only an unconsumed message keeps the lifecycle from removing more.
    held integer not null default 0,
    -- Since when nothing is kept.
    emptied_at integer,
    unique (queue_id, name)
) strict;
create index partitions_by_queue on partitions (queue_id);
create index partitions_to_check on partitions (check_at) where check_at is not null;

-- The messages of one push to one partition. Payload i (from 0) lies in data between offset
-- i and i + 1; offsets are little-endian int32, n + 1 of them. The lists are msgpack, or null
-- where no message has such a value. The big columns come last, so that reading the others
-- does not read them; rows have a rowid, since big rows make a bad B-tree.
create table segments (
    id integer primary key,
    partition_id integer not null,
    first_seq integer not null,
    last_seq integer not null,
    created_at integer not null,
    -- How many payloads were emptied.
    deleted integer not null default 0,
    -- For whom alone it is, if not for every group.
    for_group text,
    transaction_ids blob,
    trace_ids blob,
    producers blob,
    headers blob,
    offsets blob not null,
    data blob not null
) strict;
create unique index segments_by_seq on segments (partition_id, last_seq);
create index segments_withheld on segments (partition_id, last_seq)
    where deleted > 0 or for_group is not null;

-- Only ids that callers gave; the others follow from partition and seq.
create table transaction_ids (
    partition_id integer not null,
    transaction_id text not null,
    seq integer not null,
    primary key (partition_id, transaction_id)
) strict, without rowid;

-- Where a group asked to begin; also for queues that do not exist yet. '' means any.
create table subscriptions (
    -- The order in which they were said: the first that fits holds.
    id integer primary key autoincrement,
    group_name text not null,
    queue_name text not null,
    namespace text not null,
    task text not null,
    start_at integer not null,
    unique (group_name, queue_name, namespace, task)
) strict;
create index subscriptions_by_queue on subscriptions (queue_name, namespace, task);

create table groups (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    start_at integer not null,
    created_at integer not null,
    unique (queue_id, name)
) strict;
create index groups_by_name on groups (name, queue_id);

create table cursors (
    partition_id integer not null,
    group_id integer not null,
    position integer not null,
    -- From when on it can be popped: ready, end of the lease or of a delay. Null: drained.
    available_at integer,
    -- The latest lease; lease_until is null once it has ended, and ended_by says how.
    lease_no integer,
    lease_token text,
    lease_until integer,
    leased_at integer,
    lease_to integer not null default 0,
    consumer text,
    ended_by text,
    has_unresolved integer not null default 0,
    primary key (partition_id, group_id)
) strict, without rowid;
-- Exactly what can be popped, in the order in which it is.
create index cursors_available on cursors (group_id, available_at, partition_id)
    where available_at is not null;
create index cursors_leased on cursors (lease_no, lease_until) where lease_until is not null;
create index cursors_expiring on cursors (lease_until, partition_id, group_id)
    where lease_until is not null;

-- The latest leases of groups that were deleted.
create table ended_leases (
    partition_id integer not null,
    group_name text not null,
    lease_no integer not null,
    lease_token text not null,
    ended_by text not null,
    ended_at integer not null,
    primary key (partition_id, group_name)
) strict, without rowid;
create index ended_leases_by_time on ended_leases (ended_at);

-- Messages behind a cursor that are not simply undelivered: acked ahead of others, failed or
-- expired before, deleted.
create table unresolved (
    partition_id integer not null,
    group_id integer not null,
    seq integer not null,
    attempts integer not null,
    acked integer not null,
    answered_lease_no integer,
    retry_at integer,
    primary key (partition_id, group_id, seq)
) strict, without rowid;

create table items (
    id integer primary key,
    partition_id integer not null,
    seq integer not null,
    queue_id integer not null,
    state text not null,
    priority integer not null,
    -- While ready, the order of delivery is (rank, turn); otherwise waited holds the age.
    rank integer not null,
    turn integer not null,
    waited integer not null default 0,
    -- Scheduled: the run time; leased: the deadline.
    due_at integer,
    expires_at integer,
    attempts integer not null default 0,
    max_attempts integer not null,
    backoff_base real not null,
    backoff_cap real not null,
    backoff_jitter real not null,
    -- The latest lease; it is live or unsettled while the state is leased.
    lease_no integer,
    lease_token text,
    leased_at integer,
    consumer text,
    ended_by text,
    created_at integer not null,
    finished_at integer,
    transaction_id text,
    trace_id text,
    producer text,
    error text,
    headers blob,
    payload blob not null
) strict;
create unique index items_by_seq on items (partition_id, seq);
create index items_ready on items (partition_id, rank, turn) where state = 'ready';
create index items_due on items (partition_id, due_at, seq) where state in ('scheduled', 'leased');
create index items_expiring on items (partition_id, expires_at, seq)
    where state in ('scheduled', 'ready') and expires_at is not null;
create index items_leased on items (lease_no) where state = 'leased';
create index items_finished on items (partition_id, finished_at, seq)
    where state in ('done', 'cancelled');
create index items_rare on items (partition_id, state, seq)
    where state in ('scheduled', 'leased', 'cancelled', 'dead');

create table attempts (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    seq integer not null,
    attempt integer not null,
    started_at integer not null,
    ended_at integer not null,
    outcome text not null,
    consumer text,
    error text,
    result blob,
    -- Whether the item is gone, so that this goes too, later.
    orphaned integer not null default 0
) strict;
create index attempts_by_item on attempts (partition_id, seq);
create index attempts_by_queue on attempts (queue_id);
create index attempts_orphaned on attempts (ended_at) where orphaned = 1;

create table dead_letters (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    partition_name text not null,
    seq integer not null,
    group_name text not null,
    transaction_id text not null,
    error text not null,
    attempts integer not null,
    created_at integer not null,
    failed_at integer not null,
    trace_id text,
    producer text,
    -- Items only.
    priority integer,
    headers blob,
    payload blob not null
) strict;
create index dead_letters_by_queue on dead_letters (queue_id);
create index dead_letters_by_message on dead_letters (partition_id, seq);

create table deliveries (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    partition_name text not null,
    group_name text not null,
    consumer text,
    lease_no integer not null,
    leased_at integer not null,
    ended_at integer not null,
    first_seq integer not null,
    last_seq integer not null,
    completed integer not null,
    failed integer not null,
    released integer not null,
    dead integer not null,
    expired integer not null,
    error text
) strict;
create index deliveries_by_queue on deliveries (queue_id);

-- Sums kept as things flow; group_id 0 is the queue itself. A group's lag is the queue's pushed
-- less the group's position.
create table counters (
    queue_id integer not null,
    group_id integer not null,
    pushed integer not null default 0,
    removed integer not null default 0,
    position integer not null default 0,
    partitions integer not null default 0,
    completed integer not null default 0,
    failed integer not null default 0,
    dead integer not null default 0,
    dead_letters integer not null default 0,
    scheduled integer not null default 0,
    ready integer not null default 0,
    leased integer not null default 0,
    done integer not null default 0,
    cancelled integer not null default 0,
    dead_items integer not null default 0,
    -- Since the last point of the metrics.
    changed integer not null default 1,
    primary key (queue_id, group_id)
) strict, without rowid;
create index counters_changed on counters (queue_id) where changed = 1 and group_id = 0;

create table metrics (
    queue_id integer not null,
    at integer not null,
    pushed integer not null,
    completed integer not null,
    failed integer not null,
    dead integer not null,
    pending integer not null,
    primary key (queue_id, at)
) strict, without rowid;
create index metrics_by_time on metrics (at);

create table traces (
    id integer primary key autoincrement,
    partition_id integer not null,
    transaction_id text not null,
    event_type text not null,
    names blob not null,
    created_at integer not null,
    data blob not null
) strict;
create index traces_by_message on traces (partition_id, transaction_id);
create index traces_by_time on traces (created_at);
create table trace_names (
    name text not null,
    trace_id integer not null,
    primary key (name, trace_id)
) strict, without rowid;
create index trace_names_by_trace on trace_names (trace_id);

create table settings (
    key text primary key,
    value text not null
) strict, without rowid;

-- The last lease number that was given.
create table lease_numbers (
    last integer not null
) strict;
insert into lease_numbers (last) values (0);

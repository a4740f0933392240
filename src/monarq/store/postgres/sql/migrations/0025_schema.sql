-- The schema of a PostgreSQL store. docs/model.md says what a store promises, docs/glossary.md what the
-- words mean. The procedures that work on these tables are in ../procedures.
--
-- Columns that end in _at or _until are times in microseconds since the epoch, *_seconds, lease_time and
-- the like are durations in seconds. Names sort by their bytes (collate "C"), as on SQLite. There are no
-- foreign keys: a row may outlive the row that it names, and then says so in its comment.
--
-- Tables whose rows change all the time leave room on their pages for the next version of a row
-- (fillfactor), and are vacuumed early.

-- === Queues, their partitions and what is stored in them ==============================================

-- The ids of queues and groups have the time in them (microseconds, in 52 bits): brokers remember ids, and
-- a database that is set back to a backup, or whose standby was behind, must not give an id again.
create sequence monarq.queue_numbers;
create sequence monarq.group_numbers;

create table monarq.queues (
    id bigint primary key default
        ((extract(epoch from clock_timestamp()) * 1000000)::bigint << 11)
            | (nextval('monarq.queue_numbers') & 2047),
    name text collate "C" not null unique,
    kind text not null check (kind in ('ordered', 'work')),
    -- The two labels by which a pop may choose queues. '' if the queue has no such label.
    namespace text collate "C" not null,
    task text collate "C" not null,
    -- A paused queue takes pushes and acks, and a pop finds nothing in it.
    paused boolean not null default false,
    -- Rises with every change of the row, so that a broker knows when what it remembers of it is old. It is
    -- the time of the change, for the same reason as in ids.
    version bigint not null default 1,
    created_at bigint not null,

    -- From here on: the options, as docs/api.md describes them (lease_time is leaseTime). 0 switches a
    -- limit or a delay off. First those of both kinds of queue.
    lease_time double precision not null,
    retention_enabled boolean not null,
    retention_seconds double precision not null,
    completed_retention_seconds double precision not null,
    max_size bigint not null,
    encryption_enabled boolean not null,
    priority integer not null,
    -- The name of the queue that takes this one's dead, or ''.
    dead_queue text collate "C" not null,
    dead_letter_queue boolean not null,

    -- Options of ordered queues.
    retain_until_archived boolean not null default false,
    retry_limit integer not null,
    -- Milliseconds.
    retry_delay bigint not null,
    delayed_processing double precision not null,
    window_buffer double precision not null,
    max_wait_time_seconds double precision not null,
    dlq_after_max_retries boolean not null,

    -- Options of work queues.
    max_attempts integer not null,
    backoff_base double precision not null,
    backoff_cap double precision not null,
    backoff_jitter double precision not null,
    expire_timeout double precision not null,
    default_priority integer not null,
    -- Whether the items are shell commands. Never changes.
    runs_commands boolean not null default false
);
create index on monarq.queues (namespace);
create index on monarq.queues (task);
create index on monarq.queues (dead_queue) where dead_queue <> '';
-- The shortest time after which a message or an item is too old in any queue.
create index on monarq.queues (max_wait_time_seconds) where max_wait_time_seconds > 0;
create index on monarq.queues (expire_timeout) where expire_timeout > 0;

-- A work queue has one partition. An ordered queue gets a partition with the first push to its name.
create table monarq.partitions (
    -- Never used again: it is the first half of the ids of the partition's messages.
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    name text collate "C" not null,
    -- The kept messages are first_seq to last_seq. If none is kept, first_seq is last_seq + 1.
    first_seq bigint not null default 1,
    last_seq bigint not null default 0,
    -- The time of the last push. The times of a partition's messages never fall.
    last_at bigint not null,
    -- Ordered queues: the last message that is in the archive, for retain_until_archived.
    archived_seq bigint not null default 0,
    -- Work queues: the number of turns given to items, see items.turn.
    turns bigint not null default 0,
    -- When the lifecycle has to look for messages that are too old, for messages to remove, and for an
    -- empty partition to remove.
    check_at bigint not null,
    -- When messages were last removed: an empty partition is empty since then, or since last_at.
    emptied_at bigint,
    unique (queue_id, name)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
create index on monarq.partitions (check_at);

-- The messages of ordered queues: a row has those of one push to one partition.
create table monarq.segments (
    partition_id bigint not null,
    first_seq bigint not null,
    count integer not null,
    created_at bigint not null,
    -- How many of the messages were deleted. Each keeps its seq and has an empty payload.
    deleted integer not null default 0,
    -- The name of the only group that gets these messages, after a redrive. Null: every group does.
    for_group text collate "C",
    -- The payloads are one piece, data. Payload i, counted from 0, lies between offset i and offset i + 1.
    -- The n + 1 offsets are little-endian int32, as in Arrow.
    data bytea not null,
    offsets bytea not null,
    -- Arrays with an entry a message, or null if all entries would be null.
    transaction_ids text[],
    trace_ids text[],
    producers text[],
    headers text[],
    primary key (partition_id, first_seq)
) with (
    -- A segment that fits on a page stays whole in its row. Payloads kept elsewhere would cost a push an
    -- index entry, and every pop of one message a search for it.
    toast_tuple_target = 8160,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_scale_factor = 0.05);
alter table monarq.segments
    -- Uncompressed, so that reading a slice reads only the pages that it needs.
    alter column data set storage external,
    alter column offsets set storage external,
    -- Most ids are random. To try to compress thousands of them is a tenth of the server's time for a push.
    alter column transaction_ids set storage external;
-- Segments with a message that some group does not get.
create index on monarq.segments (partition_id, first_seq)
    where deleted > 0 or for_group is not null;

-- Transaction ids that a sender gave, of messages and items that are kept. All others are the message's
-- own id, which follows from partition and seq.
create table monarq.transaction_ids (
    partition_id bigint not null,
    transaction_id text collate "C" not null,
    seq bigint not null,
    primary key (partition_id, transaction_id) include (seq)
) with (autovacuum_vacuum_scale_factor = 0.05);

-- Marks of calls of push that were stored, so that a repeat of such a call stores nothing. Kept for a day.
create table monarq.push_marks (
    mark text collate "C" primary key,
    pushed_at bigint not null,
    -- If some requests of the call were refused, their places in the call.
    refused integer[]
) with (autovacuum_vacuum_scale_factor = 0.05);
create index on monarq.push_marks (pushed_at);

-- === Ordered queues: groups and how far they have come =================================================

-- Where a group asked to begin. Holds for queues that are made later, too.
create table monarq.subscriptions (
    group_name text collate "C" not null,
    -- '' stands for any queue, namespace or task.
    queue_name text collate "C" not null,
    namespace text collate "C" not null,
    task text collate "C" not null,
    -- The group gets the messages pushed at this time or later.
    start_at bigint not null,
    primary key (group_name, queue_name, namespace, task)
);

-- A group in a queue: a group that consumes two queues has two rows.
create table monarq.groups (
    id bigint primary key default
        ((extract(epoch from clock_timestamp()) * 1000000)::bigint << 11)
            | (nextval('monarq.group_numbers') & 2047),
    queue_id bigint not null,
    name text collate "C" not null,
    start_at bigint not null,
    created_at bigint not null,
    -- While the cursors of a new group are made in steps: every partition up to this id has one. Null:
    -- every partition has one.
    joined_to bigint,
    unique (queue_id, name)
);
create index on monarq.groups (name);
create index groups_being_made on monarq.groups (joined_to) where joined_to is not null;

-- The names of deleted groups, for rows of the delivery log. Kept for a week.
create table monarq.deleted_groups (
    id bigint primary key,
    name text collate "C" not null,
    deleted_at bigint not null
);
create index on monarq.deleted_groups (deleted_at);

-- Numbers of leases, on cursors and on items.
create sequence monarq.lease_numbers;

-- How far a group has come in a partition, and its lease there.
create table monarq.cursors (
    partition_id bigint not null,
    group_id bigint not null,
    -- All messages up to this seq are resolved: completed or dead, never to be delivered again.
    position bigint not null,
    -- When the partition can be popped: since the messages came, or when the lease or a delay ends. Null:
    -- the group has consumed everything.
    available_at bigint,
    has_unresolved boolean not null default false,

    -- The lease, over messages up to lease_to, with the deadline lease_until. Null if there is none.
    lease_no bigint,
    -- Stays when the lease ends, and then belongs to ended_lease_no.
    lease_token text,
    lease_until bigint,
    leased_at bigint,
    lease_to bigint,
    -- Messages under the lease that have no answer yet.
    lease_left integer not null default 0,
    -- Whether the lease is over a single message. Only then does its expiry count as a delivery.
    lease_of_one boolean not null default false,
    consumer text,

    -- The lease that ended last, and whether everything under it was answered.
    ended_lease_no bigint,
    ended_answered boolean not null default false,
    -- The numbers of the last two leases that were lost, that is, ended with messages unanswered. A lease
    -- with a number above lost_lease_no, or between the two, has answered all of its messages. A cursor
    -- begins with a lost_lease_no above every lease that an earlier cursor here may have had.
    lost_lease_no bigint not null default 0,
    lost_before_no bigint,
    primary key (partition_id, group_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
-- Exactly what can be popped, in the order in which it is.
create index cursors_available on monarq.cursors (group_id, available_at, partition_id)
    where available_at is not null;
create index cursors_lease on monarq.cursors (lease_no) where lease_no is not null;
create index cursors_expiring on monarq.cursors (lease_until) where lease_until is not null;

-- Messages beyond a cursor's position that are not simply undelivered: answered before an earlier message,
-- under a lease that expired, deleted, or redriven for another group.
create table monarq.unresolved (
    partition_id bigint not null,
    group_id bigint not null,
    seq bigint not null,
    -- Deliveries that count: failed ones, and expiries of a lease over this message alone.
    attempts integer not null default 0,
    -- Whether the message is resolved, so that the position may move over it.
    acked boolean not null default false,
    -- The lease of the last answer, so that a repeat of the answer is known.
    answered_lease_no bigint,
    -- Not delivered before this time. Null: at any time.
    retry_at bigint,
    -- Of a suspect, a message whose lease expired: how many messages a lease with it may cover. Null: any
    -- number.
    lease_limit integer,
    -- The last error, for the dead letter if its last consumer names none.
    error text,
    primary key (partition_id, group_id, seq)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- The last lease on each partition of a group that was deleted, so that a late ack meets the right error.
-- Kept for a week.
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

-- === Work queues: items and their attempts =============================================================

create table monarq.items (
    partition_id bigint not null,
    seq bigint not null,
    queue_id bigint not null,
    -- 'scheduled', 'ready', 'leased', 'done', 'cancelled' or 'dead'.
    state text not null,
    priority integer not null,
    -- While the item is ready, the order of delivery is (rank, turn), see docs/adr/0007-rank.md. While it
    -- is not, it does not age, and waited keeps the age that it had.
    rank bigint not null,
    turn bigint not null,
    waited bigint not null default 0,
    -- Scheduled: the run time. Leased: the deadline of the lease. Otherwise null.
    due_at bigint,
    -- When the item is too old, if it is still scheduled or ready then.
    expires_at bigint,
    -- Leases of the item, the present one included, but for those that were released.
    attempts integer not null default 0,
    -- Taken from the options of the queue or of the push; the queue's other backoff options hold as they
    -- are when the item fails.
    max_attempts integer not null,
    backoff_base double precision not null,
    -- As in cursors.
    lease_no bigint,
    lease_token text,
    leased_at bigint,
    consumer text,
    ended_lease_no bigint,
    ended_answered boolean not null default false,
    created_at bigint not null,
    finished_at bigint,
    -- Whether the item was pushed as a shell command. Nothing else makes a worker run it as one, see
    -- docs/adr/0033-command-mark.md.
    is_command boolean not null default false,
    payload bytea not null,
    -- Null: the item's own id.
    transaction_id text collate "C",
    trace_id text,
    producer text,
    headers text,
    error text,
    primary key (partition_id, seq)
) with (
    -- Every change of an item changes an index, too. Room for its next version on the same page would save
    -- nothing, and would cost every push pages.
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);
-- A push asks of each index whether it takes the new item, and a lease writes each index that has it. So
-- there are few indexes, and their conditions begin with a null test where they can, which takes a fraction
-- of the time of a comparison of texts.
--
-- No two entries of items_ready are alike: a look for duplicates before each split of a page finds none.
create index items_ready on monarq.items (partition_id, rank, turn)
    with (deduplicate_items = off) where state = 'ready';
-- Not by state, so that no other index seems as good for what is due.
create index items_due on monarq.items (partition_id, due_at) where due_at is not null;
create index items_expiring on monarq.items (partition_id, expires_at)
    where expires_at is not null and state in ('ready', 'scheduled');
create index items_lease on monarq.items (lease_no) where lease_no is not null;
create index items_finished on monarq.items (partition_id, finished_at)
    where finished_at is not null and state in ('done', 'cancelled');
-- For lists by state. Ready items of the usual priority that have not moved since their push have the same
-- order by rank as by seq, so items_ready has them; leased items are in items_lease.
create index items_by_state on monarq.items (partition_id, state, seq)
    where state <> 'done' and state <> 'leased' and (state <> 'ready' or rank <> seq - 5);

-- Attempts that have ended, but for those that were released. Those of items that are gone go a week after
-- their end.
create table monarq.attempts (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_id bigint not null,
    seq bigint not null,
    -- Counts from 1 for each item.
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

-- The output of attempts, written while they run: parts in the order of start. Kept for a week.
create table monarq.outputs (
    partition_id bigint not null,
    seq bigint not null,
    attempt integer not null,
    -- Where the part begins in the attempt's output, in bytes of plain output.
    start integer not null,
    -- Whether data is encrypted. Output may begin with any byte, so its first byte does not say so.
    sealed boolean not null default false,
    data bytea not null,
    written_at bigint not null,
    primary key (partition_id, seq, attempt, start)
);
create index on monarq.outputs (written_at);

-- === What died, and the logs ===========================================================================

-- Copies of dead messages and items, kept until they are redriven or purged.
create table monarq.dead_letters (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_id bigint not null,
    -- The partition may be gone.
    partition_name text collate "C" not null,
    seq bigint not null,
    -- The group for which the message died; '' for an item.
    group_name text collate "C" not null,
    is_item boolean not null,
    transaction_id text collate "C" not null,
    payload bytea not null,
    trace_id text,
    producer text,
    headers text,
    error text not null,
    attempts integer not null,
    -- When the message was pushed, and when it died.
    created_at bigint not null,
    failed_at bigint not null
);
create index on monarq.dead_letters (queue_id, id);
create index on monarq.dead_letters (partition_id, seq);

-- The delivery log of ordered queues: a row for each answer to a lease, or its expiry. Kept for a week.
create table monarq.deliveries (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    -- The partition and the group may be gone; deleted_groups has the group's name then.
    partition_id bigint not null,
    group_id bigint not null,
    consumer text,
    lease_no bigint not null,
    leased_at bigint not null,
    ended_at bigint not null,
    -- The messages that the answer is about, and how many of them ended in which way.
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

-- Notes that consumers leave about messages. Kept for a week.
create table monarq.traces (
    id bigint generated always as identity primary key,
    partition_id bigint not null,
    transaction_id text collate "C" not null,
    event_type text not null,
    -- JSON.
    data bytea not null,
    names text[] not null,
    created_at bigint not null
);
create index on monarq.traces (partition_id, transaction_id, id);
create index on monarq.traces using brin (created_at);
-- The names of traces, for finding traces by name.
create table monarq.trace_names (
    name text collate "C" not null,
    trace_id bigint not null,
    primary key (name, trace_id)
);

-- === Figures ===========================================================================================

-- Sums that each transaction adds to, so that nothing counts rows. They are spread over shards, so that
-- concurrent calls do not wait for each other. group_id 0 is the queue itself. The lag of a group is the
-- queue's pushed less the group's position, which is the sum over its partitions.
create table monarq.counters (
    queue_id bigint not null,
    group_id bigint not null,
    shard integer not null,
    -- Messages or items ever pushed, and how many of them are removed from the store.
    pushed bigint not null default 0,
    removed bigint not null default 0,
    position bigint not null default 0,
    partitions bigint not null default 0,
    -- How deliveries and attempts ended, ever.
    completed bigint not null default 0,
    failed bigint not null default 0,
    dead bigint not null default 0,
    -- Dead letters, and items by state, now.
    dead_letters bigint not null default 0,
    scheduled bigint not null default 0,
    ready bigint not null default 0,
    leased bigint not null default 0,
    done bigint not null default 0,
    cancelled bigint not null default 0,
    dead_items bigint not null default 0,
    primary key (queue_id, group_id, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- The counters of each queue as they were at a minute; no row for a minute without a change. Kept for 30
-- days.
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

-- One row: the last minute of metrics.
create table monarq.rollups (at bigint not null);
insert into monarq.rollups values (0);

-- === What brokers, workers and pipelines keep ==========================================================

-- Workers, schedules, pipeline runs and the like: JSON under a kind and a key.
create table monarq.records (
    kind text collate "C" not null,
    key text collate "C" not null,
    value bytea not null,
    updated_at bigint not null,
    expires_at bigint,
    primary key (kind, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index on monarq.records (expires_at) where expires_at is not null;

-- Settings that all brokers of the store share, such as maintenance.
create table monarq.settings (
    key text collate "C" primary key,
    value text not null
);

-- === For people who look at the store with SQL =========================================================

-- The i-th (from 0) of the little-endian int32 numbers in a bytea.
create function monarq.offset_at(p_offsets bytea, p_index integer) returns integer
    language sql immutable strict parallel safe
as $$
    select get_byte(p_offsets, 4 * p_index)
        | (get_byte(p_offsets, 4 * p_index + 1) << 8)
        | (get_byte(p_offsets, 4 * p_index + 2) << 16)
        | (get_byte(p_offsets, 4 * p_index + 3) << 24)
$$;

-- The messages of ordered queues, one a row. The payload is null if it is encrypted (then it begins with
-- the byte 1 or 2, as no JSON does) or deleted.
create view monarq.messages as
select q.name as queue, p.name as partition, s.partition_id, s.first_seq + i as seq,
       coalesce(s.transaction_ids[i + 1], s.partition_id || '-' || (s.first_seq + i))
           as transaction_id,
       s.trace_ids[i + 1] as trace_id,
       s.producers[i + 1] as producer,
       case when get_byte(body.bytes, 0) > 2 then convert_from(body.bytes, 'UTF8') end as payload,
       to_timestamp(s.created_at / 1e6) as created_at
from monarq.segments s
join monarq.partitions p on p.id = s.partition_id
join monarq.queues q on q.id = p.queue_id
cross join lateral generate_series(0, s.count - 1) as i
cross join lateral (
    select nullif(substring(s.data from monarq.offset_at(s.offsets, i) + 1
        for monarq.offset_at(s.offsets, i + 1) - monarq.offset_at(s.offsets, i)), '') as bytes
) body;

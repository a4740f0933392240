-- The schema of a SQLite store. docs/model.md says what a store promises, docs/glossary.md what the words
-- mean.
--
-- Columns that end in _at or _until are times in microseconds since the epoch, *_seconds, lease_time and
-- the like are durations in seconds. Booleans are 0 and 1. Lists are msgpack. There are no foreign keys:
-- a row may outlive the row that it names, and then says so in its comment.
--
-- Columns that may be large come last in their table, so that reading the others does not read them.

-- === Queues, their partitions and what is stored in them ==============================================

create table queues (
    -- Never used again, also not after the queue was deleted.
    id integer primary key autoincrement,
    name text not null unique,
    kind text not null check (kind in ('ordered', 'work')),
    -- The two labels by which a pop may choose queues. '' if the queue has no such label.
    namespace text not null,
    task text not null,
    -- A paused queue takes pushes and acks, and a pop finds nothing in it.
    paused integer not null default 0,
    -- Counts the changes of the row, so that a broker knows when what it remembers of it is old.
    version integer not null default 1,
    created_at integer not null,

    -- From here on: the options, as docs/api.md describes them (lease_time is leaseTime). 0 switches a
    -- limit or a delay off. First those of both kinds of queue.
    lease_time real not null,
    retention_enabled integer not null,
    retention_seconds real not null,
    completed_retention_seconds real not null,
    max_size integer not null,
    encryption_enabled integer not null,
    priority integer not null,
    -- The name of the queue that takes this one's dead, or ''.
    dead_queue text not null,
    dead_letter_queue integer not null,

    -- Options of ordered queues.
    retain_until_archived integer not null default 0,
    retry_limit integer not null,
    -- Milliseconds.
    retry_delay integer not null,
    delayed_processing real not null,
    window_buffer real not null,
    max_wait_time_seconds real not null,
    dlq_after_max_retries integer not null,

    -- Options of work queues.
    max_attempts integer not null,
    backoff_base real not null,
    backoff_cap real not null,
    backoff_jitter real not null,
    expire_timeout real not null,
    default_priority integer not null,
    -- Whether the items are shell commands. Never changes.
    runs_commands integer not null default 0
) strict;
create index queues_by_namespace on queues (namespace, task) where kind = 'ordered';
create index queues_by_task on queues (task) where kind = 'ordered';
create index queues_by_dead_queue on queues (dead_queue) where dead_queue <> '';
create index queues_of_work on queues (id) where kind = 'work';
-- The shortest time after which a message or an item is too old in any queue.
create index queues_by_max_wait on queues (max_wait_time_seconds) where max_wait_time_seconds > 0;
create index queues_by_expiry on queues (expire_timeout) where expire_timeout > 0;

-- A work queue has one partition. An ordered queue gets a partition with the first push to its name.
create table partitions (
    -- Never used again: it is the first half of the ids of the partition's messages.
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    -- The kept messages are first_seq to last_seq. If none is kept, first_seq is last_seq + 1.
    first_seq integer not null default 1,
    last_seq integer not null default 0,
    -- The time of the last push. The times of a partition's messages never fall.
    last_at integer not null default 0,
    -- Ordered queues: the last message that is in the archive, for retain_until_archived.
    archived_seq integer not null default 0,
    -- Work queues: the number of turns given to items, see items.turn.
    turns integer not null default 0,
    -- Ordered queues: when the lifecycle has to look for messages that are too old, for messages to
    -- remove, and for an empty partition to remove. Null: not before something happens.
    check_at integer,
    -- Whether the lifecycle would remove the next message if all groups had consumed it. The ack that
    -- resolves it then sets check_at.
    held integer not null default 0,
    -- Since when no message is kept. Null: some are.
    emptied_at integer,
    unique (queue_id, name)
) strict;
create index partitions_by_queue on partitions (queue_id);
create index partitions_to_check on partitions (check_at) where check_at is not null;

-- The messages of ordered queues: a row has those of one push to one partition. The table has a rowid,
-- since rows with large columns make a bad B-tree.
create table segments (
    id integer primary key,
    partition_id integer not null,
    first_seq integer not null,
    last_seq integer not null,
    created_at integer not null,
    -- How many of the messages were deleted. Each keeps its seq and has an empty payload.
    deleted integer not null default 0,
    -- The name of the only group that gets these messages, after a redrive. Null: every group does.
    for_group text,
    -- Lists with an entry a message, or null if all entries would be null.
    transaction_ids blob,
    trace_ids blob,
    producers blob,
    headers blob,
    -- The payloads are one piece, data. Payload i, counted from 0, lies between offset i and offset i + 1.
    -- The n + 1 offsets are little-endian int32, as in Arrow.
    offsets blob not null,
    data blob not null
) strict;
create unique index segments_by_seq on segments (partition_id, last_seq);
-- Segments with a message that some group does not get.
create index segments_withheld on segments (partition_id, last_seq)
    where deleted > 0 or for_group is not null;

-- Transaction ids that a sender gave, of messages and items that are kept. All others are the message's
-- own id, which follows from partition and seq.
create table transaction_ids (
    partition_id integer not null,
    transaction_id text not null,
    seq integer not null,
    primary key (partition_id, transaction_id)
) strict, without rowid;

-- Marks of calls of push that were stored, so that a repeat of such a call stores nothing. Kept for a day.
create table push_marks (
    mark text not null primary key,
    pushed_at integer not null,
    -- If some requests of the call were refused, their places in the call, as JSON.
    refused text
) strict, without rowid;
create index push_marks_by_time on push_marks (pushed_at);

-- === Ordered queues: groups and how far they have come =================================================

-- Where a group asked to begin. Holds for queues that are made later, too.
create table subscriptions (
    -- Rises in the order in which groups asked.
    id integer primary key autoincrement,
    group_name text not null,
    -- '' stands for any queue, namespace or task.
    queue_name text not null,
    namespace text not null,
    task text not null,
    -- The group gets the messages pushed at this time or later.
    start_at integer not null,
    unique (group_name, queue_name, namespace, task)
) strict;
create index subscriptions_by_queue on subscriptions (queue_name, namespace, task);

-- A group in a queue: a group that consumes two queues has two rows.
create table groups (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    start_at integer not null,
    created_at integer not null,
    -- While the cursors of a new group are made in steps: every partition up to this id has one. Null:
    -- every partition has one.
    joined_to integer,
    unique (queue_id, name)
) strict;
create index groups_by_name on groups (name, queue_id);
create index groups_being_made on groups (joined_to) where joined_to is not null;

-- How far a group has come in a partition, and its lease there.
create table cursors (
    partition_id integer not null,
    group_id integer not null,
    -- All messages up to this seq are resolved: completed or dead, never to be delivered again.
    position integer not null,
    -- When the partition can be popped: since the messages came, or when the lease or a delay ends. Null:
    -- the group has consumed everything.
    available_at integer,
    has_unresolved integer not null default 0,

    -- The latest lease, over messages up to lease_to. lease_until is its deadline, or null once it has
    -- ended; then ended_by is 'answered', 'expired' or 'moved' (by a seek, clear or cancel).
    lease_no integer,
    lease_token text,
    lease_until integer,
    leased_at integer,
    lease_to integer not null default 0,
    consumer text,
    ended_by text,
    -- Whether the lease may be on other partitions as well. The id of a lease on one partition names it;
    -- a lease on several is found by its number.
    lease_spread integer not null default 0,
    -- Whether the lease is over a single message. Only then does its expiry count as a delivery.
    lease_of_one integer not null default 0,

    -- The numbers of the last two leases that were lost, that is, ended with messages unanswered. A lease
    -- with a number above lost_lease_no, or between the two, has answered all of its messages. A cursor
    -- begins with a lost_lease_no above every lease that an earlier cursor here may have had.
    lost_lease_no integer not null default 0,
    lost_before_no integer,

    -- When the lifecycle has to look whether the lease has run out; never later than lease_until. Stays
    -- when the lease ends, so that a partition which is popped all the time does not write it each time.
    check_at integer,
    primary key (partition_id, group_id)
) strict, without rowid;
-- Exactly what can be popped, in the order in which it is.
create index cursors_available on cursors (group_id, available_at, partition_id)
    where available_at is not null;
create index cursors_leased on cursors (lease_no)
    where lease_spread = 1 and lease_until is not null;
create index cursors_to_check on cursors (check_at) where check_at is not null;

-- Messages beyond a cursor's position that are not simply undelivered: answered before an earlier message,
-- under a lease that expired, deleted, or redriven for another group.
create table unresolved (
    partition_id integer not null,
    group_id integer not null,
    seq integer not null,
    -- Deliveries that count: failed ones, and expiries of a lease over this message alone.
    attempts integer not null,
    -- Whether the message is resolved, so that the position may move over it.
    acked integer not null,
    -- The lease of the last answer, so that a repeat of the answer is known.
    answered_lease_no integer,
    -- Not delivered before this time. Null: at any time.
    retry_at integer,
    -- Of a suspect, a message whose lease expired: how many messages a lease with it may cover. Null: any
    -- number.
    lease_limit integer,
    -- The last error, for the dead letter if its last consumer names none.
    error text,
    primary key (partition_id, group_id, seq)
) strict, without rowid;

-- The last lease on each partition of a group that was deleted, so that a late ack meets the right error.
-- Kept for a week.
create table ended_leases (
    partition_id integer not null,
    group_name text not null,
    lease_no integer not null,
    lease_token text not null,
    -- As in cursors.
    ended_by text not null,
    ended_at integer not null,
    primary key (partition_id, group_name)
) strict, without rowid;
create index ended_leases_by_time on ended_leases (ended_at);

-- One row: the highest lease number that was given, to a cursor or an item. Processes take numbers in
-- blocks.
create table lease_numbers (
    last integer not null
) strict;
insert into lease_numbers (last) values (0);

-- === Work queues: items and their attempts =============================================================

create table items (
    id integer primary key,
    partition_id integer not null,
    seq integer not null,
    queue_id integer not null,
    -- 'scheduled', 'ready', 'leased', 'done', 'cancelled' or 'dead'.
    state text not null,
    priority integer not null,
    -- While the item is ready, the order of delivery is (rank, turn), see docs/adr/0007-rank.md. While it
    -- is not, it does not age, and waited keeps the age that it had.
    rank integer not null,
    turn integer not null,
    waited integer not null default 0,
    -- Scheduled: the run time. Leased: the deadline of the lease. Otherwise null.
    due_at integer,
    -- When the item is too old, if it is still scheduled or ready then.
    expires_at integer,
    -- Leases of the item, the present one included, but for those that were released.
    attempts integer not null default 0,
    -- Taken from the options of the queue or of the push.
    max_attempts integer not null,
    backoff_base real not null,
    backoff_cap real not null,
    backoff_jitter real not null,
    -- The latest lease. It has not ended while the state is 'leased'; then ended_by is as in cursors.
    lease_no integer,
    lease_token text,
    leased_at integer,
    consumer text,
    ended_by text,
    created_at integer not null,
    finished_at integer,
    -- Null: the item's own id.
    transaction_id text,
    trace_id text,
    producer text,
    -- Whether the item was pushed as a shell command. Nothing else makes a worker run it as one, see
    -- docs/adr/0033-command-mark.md.
    is_command integer not null default 0,
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

-- Attempts that have ended, but for those that were released.
create table attempts (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    seq integer not null,
    -- Counts from 1 for each item.
    attempt integer not null,
    started_at integer not null,
    ended_at integer not null,
    outcome text not null,
    consumer text,
    error text,
    result blob,
    -- Whether the item is gone. Such a row goes a week after its end.
    orphaned integer not null default 0
) strict;
create index attempts_by_item on attempts (partition_id, seq);
create index attempts_by_queue on attempts (queue_id);
create index attempts_orphaned on attempts (ended_at) where orphaned = 1;

-- The output of attempts, written while they run: parts in the order of start. Kept for a week.
create table outputs (
    partition_id integer not null,
    seq integer not null,
    attempt integer not null,
    -- Where the part begins in the attempt's output, in bytes of plain output.
    start integer not null,
    written_at integer not null,
    -- Whether data is encrypted. Output may begin with any byte, so its first byte does not say so.
    sealed integer not null default 0,
    data blob not null,
    primary key (partition_id, seq, attempt, start)
) strict;
create index outputs_by_time on outputs (written_at);

-- === What died, and the logs ===========================================================================

-- Copies of dead messages and items, kept until they are redriven or purged.
create table dead_letters (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    -- The partition may be gone.
    partition_name text not null,
    seq integer not null,
    -- The group for which the message died; '' for an item.
    group_name text not null,
    transaction_id text not null,
    error text not null,
    attempts integer not null,
    -- When the message was pushed, and when it died.
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

-- The delivery log of ordered queues: a row for each answer to a lease, or its expiry. Kept for a week.
create table deliveries (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_id integer not null,
    -- The partition and the group may be gone.
    partition_name text not null,
    group_name text not null,
    consumer text,
    lease_no integer not null,
    leased_at integer not null,
    ended_at integer not null,
    -- The messages that the answer is about, and how many of them ended in which way.
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

-- Notes that consumers leave about messages. Kept for a week.
create table traces (
    id integer primary key autoincrement,
    partition_id integer not null,
    transaction_id text not null,
    event_type text not null,
    -- A list of texts.
    names blob not null,
    created_at integer not null,
    -- JSON.
    data blob not null
) strict;
create index traces_by_message on traces (partition_id, transaction_id);
create index traces_by_time on traces (created_at);
-- The names of traces, for finding traces by name.
create table trace_names (
    name text not null,
    trace_id integer not null,
    primary key (name, trace_id)
) strict, without rowid;
create index trace_names_by_trace on trace_names (trace_id);

-- === Figures ===========================================================================================

-- Sums that each transaction adds to, so that nothing counts rows. group_id 0 is the queue itself. The lag
-- of a group is the queue's pushed less the group's position, which is the sum over its partitions.
create table counters (
    queue_id integer not null,
    group_id integer not null,
    -- Messages or items ever pushed, and how many of them are removed from the store.
    pushed integer not null default 0,
    removed integer not null default 0,
    position integer not null default 0,
    partitions integer not null default 0,
    -- How deliveries and attempts ended, ever.
    completed integer not null default 0,
    failed integer not null default 0,
    dead integer not null default 0,
    -- Dead letters, and items by state, now.
    dead_letters integer not null default 0,
    scheduled integer not null default 0,
    ready integer not null default 0,
    leased integer not null default 0,
    done integer not null default 0,
    cancelled integer not null default 0,
    dead_items integer not null default 0,
    -- Whether the queue has changed since the last row of metrics. Only in rows of group 0.
    changed integer not null default 1,
    primary key (queue_id, group_id)
) strict, without rowid;
create index counters_changed on counters (queue_id) where changed = 1 and group_id = 0;

-- The counters of each queue as they were at a minute; no row for a minute without a change. Kept for 30
-- days.
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

-- === What brokers, workers and pipelines keep ==========================================================

-- Workers, schedules, pipeline runs and the like: JSON under a kind and a key.
create table records (
    kind text not null,
    key text not null,
    value blob not null,
    updated_at integer not null,
    expires_at integer,
    primary key (kind, key)
) strict, without rowid;
create index records_to_remove on records (expires_at) where expires_at is not null;

-- Settings that all brokers of the store share, such as maintenance.
create table settings (
    key text primary key,
    value text not null
) strict, without rowid;

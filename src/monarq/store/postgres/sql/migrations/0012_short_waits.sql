-- How soon after a push something may be too old, in any queue.
create index on monarq.queues (max_wait_time_seconds) where max_wait_time_seconds > 0;
create index on monarq.queues (expire_timeout) where expire_timeout > 0;

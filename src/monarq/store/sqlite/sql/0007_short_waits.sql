-- How soon after a push something may be too old, in any queue.
create index queues_by_max_wait on queues (max_wait_time_seconds) where max_wait_time_seconds > 0;
create index queues_by_expiry on queues (expire_timeout) where expire_timeout > 0;

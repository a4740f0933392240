-- Whether the items of a work queue are shell commands.
alter table queues add column runs_commands integer not null default 0;

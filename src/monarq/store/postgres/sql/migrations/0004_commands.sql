-- Whether the items of a work queue are shell commands.
alter table monarq.queues add column runs_commands boolean not null default false;

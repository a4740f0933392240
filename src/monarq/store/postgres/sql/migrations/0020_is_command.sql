-- Whether the item was pushed as a shell command. Queues that run commands have always refused any
-- other item, so the items that they have now are commands.
alter table monarq.items add column is_command boolean not null default false;
update monarq.items set is_command = true
    where queue_id in (select id from monarq.queues where runs_commands);

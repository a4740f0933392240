-- Whether the item was pushed as a shell command. Queues that run commands have always refused any
-- other item, so the items that they have now are commands.
alter table items add column is_command integer not null default 0;
update items set is_command = 1 where queue_id in (select id from queues where runs_commands = 1);

-- Of a group that is being made: up to which partition (by id) every partition has a cursor of the group.
-- Null: all partitions have one.
alter table monarq.groups add column joined_to bigint;
create index groups_being_made on monarq.groups (joined_to) where joined_to is not null;

-- Of a group that is being made: up to which partition (by id) every partition has a cursor of the group.
-- Null: all partitions have one.
alter table groups add column joined_to integer;
create index groups_being_made on groups (joined_to) where joined_to is not null;

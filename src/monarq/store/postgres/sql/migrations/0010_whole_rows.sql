-- A segment that fits on a page stays whole in its row. Its payloads kept elsewhere would cost a
-- push an index entry, and every pop of one message a search for it.
alter table monarq.segments set (toast_tuple_target = 8160);

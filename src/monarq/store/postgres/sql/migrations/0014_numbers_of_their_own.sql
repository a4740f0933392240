-- A database that is set back to a backup, or is taken over by a standby that was behind, counts on
-- from where it was; a broker that runs on remembers numbers that were given since. With the time
-- (microseconds, in 52 bits) in them, none of them becomes another queue's or group's.
create sequence monarq.queue_numbers;
create sequence monarq.group_numbers;
alter table monarq.queues alter column id drop identity;
alter table monarq.queues alter column id set default
    ((extract(epoch from clock_timestamp()) * 1000000)::bigint << 11)
        | (nextval('monarq.queue_numbers') & 2047);
alter table monarq.groups alter column id drop identity;
alter table monarq.groups alter column id set default
    ((extract(epoch from clock_timestamp()) * 1000000)::bigint << 11)
        | (nextval('monarq.group_numbers') & 2047);

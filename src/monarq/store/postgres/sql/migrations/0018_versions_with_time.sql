-- A queue's version is the time of its last change, so that in a database that was set back no change
-- has the version of one that was lost, and that a broker may remember.
alter table monarq.queues alter column version type bigint;

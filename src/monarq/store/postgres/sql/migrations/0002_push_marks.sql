-- Calls of push that were stored, so that a repeat of one is known.
create table monarq.push_marks (
    mark text collate "C" primary key,
    pushed_at bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05);
create index on monarq.push_marks (pushed_at);

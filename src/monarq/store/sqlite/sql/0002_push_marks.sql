-- Calls of push that were stored, so that a repeat of one is known.
create table push_marks (
    mark text not null primary key,
    pushed_at integer not null
) strict, without rowid;
create index push_marks_by_time on push_marks (pushed_at);

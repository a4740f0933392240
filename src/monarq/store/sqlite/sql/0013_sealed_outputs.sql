-- Whether a part of an output is sealed: it may begin with any byte.
alter table outputs add column sealed integer not null default 0;

-- What a message failed of last, which its dead letter says if its last consumer says nothing.
alter table unresolved add column error text;

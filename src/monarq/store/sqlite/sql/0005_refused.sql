-- Which requests of a call were refused while others of it were stored, as JSON.
alter table push_marks add column refused text;

-- Which requests of a call were refused while others of it were stored.
alter table monarq.push_marks add column refused integer[];

-- Whatever changes in an item changes an index too, so room that is left for its next version in the
-- same page saves nothing, and costs every push pages.
alter table monarq.items set (fillfactor = 100);

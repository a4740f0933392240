-- A lease writes an item anew, and each index that has it. What is due first of all is found queue by
-- queue, of which there are few; and those that are leased are in the index of leases.
drop index monarq.items_due_anywhere;
drop index monarq.items_by_state;
create index items_by_state on monarq.items (partition_id, state, seq)
    where state <> 'done' and state <> 'leased' and (state <> 'ready' or rank <> seq - 5);

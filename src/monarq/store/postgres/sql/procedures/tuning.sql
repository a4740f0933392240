-- Settings of the procedures that Monarq calls; what they call in turn runs under them too. This
-- file comes last, since replacing a procedure drops its settings.
--
-- A session keeps the plans that it made, and it may have made them when the tables were empty.
-- What every call needs is the same at any size: a look into an index for each row. Plans that
-- read a table or an index from end to end are never wanted, and neither is compiling a plan
-- that is run for a few rows. So one plan is good for all calls, and planning each anew is waste,
-- a third of the time of an ack. (Joins by hashing stay: between arrays they are what is wanted,
-- and with a table they need a scan of it.)
do $$
declare
    v_procedure text;
begin
    foreach v_procedure in array array[
        'monarq.push_messages', 'monarq.push_items', 'monarq.keep_mark', 'monarq.ensure_partitions',
        'monarq.pop_messages', 'monarq.pop_items', 'monarq.ack_and_pop',
        'monarq.join_queue', 'monarq.join_labels',
        'monarq.under_leases', 'monarq.ack_leases', 'monarq.ack_messages', 'monarq.complete_runs',
        'monarq.ack_items', 'monarq.renew',
        'monarq.find_queues', 'monarq.find_partitions', 'monarq.find_groups',
        'monarq.partition_facts',
        'monarq.lifecycle', 'monarq.make_more_cursors', 'monarq.labelled_groups', 'monarq.describe_queues',
        'monarq.list_groups', 'monarq.leased_items',
        'monarq.seek', 'monarq.delete_group', 'monarq.clear_queue', 'monarq.delete_queue',
        'monarq.delete_message', 'monarq.delete_item', 'monarq.cancel_item', 'monarq.retry_item',
        'monarq.drop_letters', 'monarq.redrive', 'monarq.first_logged', 'monarq.skip'
    ] loop
        execute 'alter function ' || v_procedure
            || ' set enable_seqscan = off set enable_mergejoin = off set jit = off'
            || ' set plan_cache_mode = force_generic_plan';
    end loop;
    -- These lock partitions in the order in which an index is asked for them, one by one.
    foreach v_procedure in array array['monarq.push_messages', 'monarq.push_items'] loop
        execute 'alter function ' || v_procedure || ' set enable_hashjoin = off';
    end loop;
end
$$;

-- Whether a part of an output is sealed: it may begin with any byte.
alter table monarq.outputs add column sealed boolean not null default false;

-- Sealed payloads begin with the byte 1 or 2, JSON does not.
create or replace view monarq.messages as
select q.name as queue, p.name as partition, s.partition_id, s.first_seq + i as seq,
       coalesce(s.transaction_ids[i + 1], s.partition_id || '-' || (s.first_seq + i))
           as transaction_id,
       s.trace_ids[i + 1] as trace_id,
       s.producers[i + 1] as producer,
       case when get_byte(body.bytes, 0) > 2 then convert_from(body.bytes, 'UTF8') end as payload,
       to_timestamp(s.created_at / 1e6) as created_at
from monarq.segments s
join monarq.partitions p on p.id = s.partition_id
join monarq.queues q on q.id = p.queue_id
cross join lateral generate_series(0, s.count - 1) as i
cross join lateral (
    select nullif(substring(s.data from monarq.offset_at(s.offsets, i) + 1
        for monarq.offset_at(s.offsets, i + 1) - monarq.offset_at(s.offsets, i)), '') as bytes
) body;

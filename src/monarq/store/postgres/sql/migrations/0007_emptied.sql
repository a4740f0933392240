-- When messages were last removed from a partition: an empty one has been so since then.
alter table monarq.partitions add column emptied_at bigint;

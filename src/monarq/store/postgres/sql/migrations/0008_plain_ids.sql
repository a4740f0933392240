-- Transaction ids are not compressed, as payloads are not: most are random, and a push of thousands
-- spends a tenth of the server's time on trying.
alter table monarq.segments alter column transaction_ids set storage external;

"""One step of re-encryption on SQLite, see `monarq.store.rekeying`.

A step first reads; if there is nothing to do, that is all. Otherwise it does all of it again in a
transaction that writes, so that no row can change in between.
"""

from __future__ import annotations

from typing import Any

import msgspec

from monarq.crypto import Cipher
from monarq.store import rekeying
from monarq.store.rekeying import Place, RekeyStep, Resealing, SealedTable
from monarq.store.sqlite.session import Session

TABLES = rekeying.tables("last_seq")
_texts = msgspec.msgpack.Decoder(list[str | None])
_blobs = msgspec.msgpack.Decoder(list[bytes | None])
# Of each column, whether a sealed value may be in it.
_MAY_BE_SEALED = {
    "error": "coalesce(substr(d.error, 1, 1) = char(2), false)",
    "payload": "substr(d.payload, 1, 1) in (x'01', x'02')",
    "result": "coalesce(substr(d.result, 1, 1) in (x'01', x'02'), false)",
    "headers": "coalesce(instr(d.headers, cast('u0002' as blob)) > 0, false)",
    "data": "(instr(d.data, x'01') > 0 or instr(d.data, x'02') > 0)",
}


def step(session: Session, cipher: Cipher, at: Place, limit: int, *, writes: bool) -> RekeyStep:
    table = at.table
    done = RekeyStep(table.name)
    resealing = Resealing(cipher, done)
    limit = _fitting(session, at, limit)
    names, sql = _select(table)
    keys = []
    for values in session.db.execute(sql, (*at.after, limit)).fetchall():
        row = dict(zip(names, values, strict=True))
        keys.append(tuple(row[key] for key in table.keys))
        if row["is_sealed"] and (row["queue"] is not None or table.name == "traces"):
            changes = resealing.row(table.name, _decoded(table, row))
            if changes and writes:
                _update(session, table, keys[-1], changes)
    return rekeying.finish(done, at, TABLES, keys, limit)


def _fitting(session: Session, at: Place, limit: int) -> int:
    table = at.table
    if table.size is None:
        return limit
    keys = ", ".join(table.keys)
    sizes = session.db.execute(
        f"select {table.size} from {table.name} "
        f"where ({keys}) > ({', '.join('?' * len(table.keys))}) order by {keys} limit ?",
        (*at.after, limit),
    )
    return rekeying.fitting(limit, [size for (size,) in sizes])


def _select(table: SealedTable) -> tuple[list[str], str]:
    columns = [*table.columns, *(name for name in table.bound if name not in table.keys)]
    sealed = " or ".join(_MAY_BE_SEALED[name] for name in table.columns)
    keys = ", ".join(f"d.{key}" for key in table.keys)
    queue_id = "p.queue_id" if table.by_partition else "d.queue_id"
    if table.name == "traces":
        queue_id = "null"
    partition = "left join partitions p on p.id = d.partition_id" if table.by_partition else ""
    partition_name = "p.name" if table.by_partition else "null"
    sql = f"""
        select {keys}, d.is_sealed,
            {", ".join(f"iif(d.is_sealed, d.{name}, null)" for name in columns)},
            q.name, {partition_name}
        from (
            select d.*, ({sealed}) as is_sealed from {table.name} d
            where ({keys}) > ({", ".join("?" * len(table.keys))}) order by {keys} limit ?) d
        {partition} left join queues q on q.id = {queue_id}
        order by {keys}
    """
    return [*table.keys, "is_sealed", *columns, "queue", "partition"], sql


def _decoded(table: SealedTable, row: dict[str, Any]) -> dict[str, Any]:
    if table.name != "segments":
        return row
    ids, headers = row["transaction_ids"], row["headers"]
    return row | {
        "transaction_ids": _texts.decode(ids) if ids else None,
        "headers": _blobs.decode(headers) if headers else None,
    }


def _update(
    session: Session, table: SealedTable, key: tuple[int, ...], changes: dict[str, Any]
) -> None:
    if table.name == "segments" and "headers" in changes:
        changes["headers"] = msgspec.msgpack.encode(changes["headers"])
    session.db.execute(
        f"update {table.name} set {', '.join(f'{name} = ?' for name in changes)} "
        f"where ({', '.join(table.keys)}) = ({', '.join('?' * len(key))})",
        (*changes.values(), *key),
    )

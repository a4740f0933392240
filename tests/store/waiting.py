"""Waiting for something to be so in PostgreSQL, which tells nobody."""

import asyncio

import asyncpg


async def wait_until(connection: asyncpg.Connection, condition: str) -> None:
    async with asyncio.timeout(30):
        while True:
            # In a transaction, others' activity would stay as it was at the first look.
            await connection.execute("select pg_stat_clear_snapshot()")
            if await connection.fetchval(f"select {condition}"):
                return
            await asyncio.sleep(0.01)

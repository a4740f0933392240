"""Waiting for something to be so in PostgreSQL, which tells nobody."""

import asyncio

import asyncpg


async def wait_until(connection: asyncpg.Connection, condition: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if await connection.fetchval(f"select {condition}"):
                return
            await asyncio.sleep(0.01)

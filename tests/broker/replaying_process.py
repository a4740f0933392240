"""A process that replays a push buffer: `python -m tests.broker.replaying_process`.

Arguments: the directory of the buffer, the address of the store and its schema. Says `begun` when
it has opened both, and ends when the buffer is empty.
"""

import asyncio
import os
import sys
from pathlib import Path

from monarq.broker.push_buffer import PushBuffer
from monarq.broker.replay import Replayer
from monarq.store import open_store


async def main(directory: str, address: str, schema: str) -> None:
    async def pause() -> None:
        pass

    async with await open_store(address, schema=schema) as store:
        buffer = await PushBuffer.open(Path(directory))
        replayer = Replayer(buffer, store.push, batch_max=7, batch_max_bytes=1 << 20, pause=pause)
        os.write(1, b"begun\n")
        while not buffer.is_empty:
            await replayer.step()
        await buffer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

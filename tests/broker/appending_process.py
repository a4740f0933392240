"""A process that appends to a push buffer, run as `python -m tests.broker.appending_process`.

Arguments: the directory, and how many senders append at once. Each appends 1, 2, 3 … one after the
other, every fifth of 5,000 bytes. What was answered goes to standard output, a line each, at once,
so that whoever kills this process knows what it promised. It ends when standard input does.
"""

import asyncio
import os
import sys
from pathlib import Path

from monarq.broker.push_buffer import PushBuffer
from monarq.errors import BufferWriteError
from tests.broker.buffering import push_of


async def send(buffer: PushBuffer, sender: int, is_over: asyncio.Event) -> None:
    number = 0
    while not is_over.is_set():
        number += 1
        text = f"{os.getpid()}-{sender}-{number}"
        try:
            size = 0 if number % 5 else 5_000
            await buffer.append(f"m{text}", [push_of(text, size=size)])
        except BufferWriteError as error:
            say(f"refused {text} {error}")
            await asyncio.sleep(0.01)
        else:
            say(f"kept {text}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def main() -> None:
    buffer = await PushBuffer.open(Path(sys.argv[1]), file_bytes=20_000)
    is_over = asyncio.Event()
    senders = [
        asyncio.create_task(send(buffer, number, is_over)) for number in range(int(sys.argv[2]))
    ]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    is_over.set()
    await asyncio.gather(*senders)
    await buffer.close()


if __name__ == "__main__":
    asyncio.run(main())

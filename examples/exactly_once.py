"""Counts words exactly once, though the program dies in the middle: a message is acked, and what
came of it is pushed, in one transaction.

    python examples/exactly_once.py [store address or URL]
"""

import asyncio
import sys

from monarq import AsyncClient

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "memory:"
TEXT = "the broker that keeps what it was given and gives what it keeps"


async def main() -> None:
    async with AsyncClient(ADDRESS) as mq:
        words, lengths = mq.queue("words"), mq.queue("lengths", int)
        await words.configure(lease_time=60)
        await words.push_many(TEXT.split())

        crashes = 2
        while batch := await words.pop():
            [word] = batch
            if crashes:
                crashes -= 1
                await words.seek(to="start")  # as if we had died: the lease is gone
            try:
                async with mq.transaction() as tx:
                    tx.push(lengths, len(word.payload))
                    tx.ack(word)
            except Exception as error:  # noqa: BLE001 - the message comes again
                print("not carried out:", error)

        counted = await lengths.pop(100)
        print(f"{len(counted)} words, {sum(each.payload for each in counted)} letters")


if __name__ == "__main__":
    asyncio.run(main())

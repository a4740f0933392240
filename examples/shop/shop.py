"""A small shop: orders flow through queues and workers, some fail; all of it is archived, analysed,
enriched by a stream into other queues, and replayed.

    python examples/shop/shop.py FOLDER

Everything is kept in that folder. Needs `pip install 'monarq[spark]'`; the pipelines start Spark,
which takes some seconds each. The commands that are shown can be typed in a shell just so.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from monarq import Client

HERE = Path(__file__).parent
CUSTOMERS = ("ada", "bob", "cleo", "dan")
ORDERS = 60


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("customers.csv", "enrich.toml"):
        shutil.copy(HERE / name, folder / name)
    store = f"sqlite:///{(folder / 'shop.db').absolute()}"
    with Client(store) as mq:
        take_orders(mq)
        bill(mq)
        pack(mq)
    pipeline(folder, store, "archive", "lake", "--once")
    pipeline(folder, store, "analyse", "lake")
    pipeline(folder, store, "run", "enrich.toml", "--once")
    pipeline(
        folder, store, "replay", "lake", "--queue", "orders", "--to", "orders-to-check",
        "--where", "CAST(get_json_object(payload, '$.total') AS DOUBLE) >= 500",
    )  # fmt: skip
    with Client(store) as mq:
        for name in ("orders-gold", "orders-silver", "orders-bronze", "orders-to-check"):
            print(f"{name}: {mq.queue(name).stats().stored} messages")


def take_orders(mq: Client) -> None:
    """One partition a customer: nobody waits for another, and all orders stay in their order."""
    mq.queue("orders").configure(retry_limit=1, retry_delay=0)
    mq.queue("packing").configure(kind="work", max_attempts=2, backoff_base=0)
    for number in range(ORDERS):
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        order = {"number": number, "customer": customer, "total": number * 10.5}
        mq.queue("orders").partition(customer).push(order)
    print(f"{ORDERS} orders taken")


def bill(mq: Client) -> None:
    """Cards of more than 600 are refused, again and again: those orders become dead letters."""
    orders = mq.queue("orders")
    while batch := orders.pop(10, group="billing", partitions=4):
        for message in batch:
            if message.payload["total"] > 600:
                message.fail("PaymentError: the card was refused")
            else:
                mq.queue("packing").push(message.payload)
                message.ack()
    dead = orders.dead_letters(group="billing").rows
    print(f"{len(dead)} orders could not be billed")


def pack(mq: Client) -> None:
    """The first attempt to pack every tenth order fails."""
    packing = mq.queue("packing")
    while batch := packing.pop(5):
        for item in batch:
            if item.payload["number"] % 10 == 0 and item.attempts == 1:
                item.fail("TimeoutError: nobody answers at the shelf")
            else:
                item.ack()
    print(f"{packing.stats().completed} orders packed")


def pipeline(folder: Path, store: str, *arguments: str) -> None:
    command = ("monarq", "pipeline", *arguments)
    print("$", *command, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", *command, "--store", store],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout.rstrip())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "shop-data"))

"""Orders flow through a queue: two groups each get all of them, in order per customer; what fails
is retried, becomes a dead letter, and is brought back when the fault is mended.

    python examples/order_flow.py [store address or URL]
"""

import sys

from monarq import Client

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "memory:"


def main() -> None:
    with Client(ADDRESS) as mq:
        orders = mq.queue("orders")
        orders.configure(retry_limit=1, retry_delay=0)

        for number in range(1, 7):
            customer = "ada" if number % 2 else "bob"
            orders.partition(customer).push({"number": number, "customer": customer})

        print("billing, in order for each customer:")
        for message in orders.pop(10, partitions=10, group="billing"):
            print(f"  {message.partition}: order {message.payload['number']}")
            message.ack()

        print("shipping, which cannot ship order 3:")
        warehouse_is_open = False

        def ship() -> None:
            while batch := orders.pop(group="shipping", wait=0.2):
                [message] = batch
                if message.payload["number"] == 3 and not warehouse_is_open:
                    print(f"  order 3 failed, attempt {message.attempts}")
                    message.fail("the warehouse is closed")
                else:
                    print(f"  order {message.payload['number']} shipped")
                    message.ack()

        ship()
        [letter] = orders.dead_letters(group="shipping").rows
        print(f"dead: order {letter.payload.decode()} because {letter.error}")

        warehouse_is_open = True
        print(f"brought back: {orders.redrive(group='shipping')}")
        ship()


if __name__ == "__main__":
    main()

"""A client by openapi-python-client: pushes, pops, acks, and pops again."""

import json
import sys

from monarq_client import Client
from monarq_client.api.messages import ack, pop, push
from monarq_client.models import AckBody, BareItemBody, PopAnswer, PushBody

QUEUE = "python 1/ü"

# Without credentials: nobody is asked for any.
client = Client(base_url=sys.argv[1])
body = PushBody(items=[BareItemBody(queue=QUEUE, payload={"n": 1})])
assert push.sync_detailed(client=client, body=body).status_code == 201
popped = pop.sync(QUEUE, client=client)
assert isinstance(popped, PopAnswer)
[message] = popped.messages
answer = ack.sync_detailed(
    client=client,
    body=AckBody(
        transaction_id=message.transaction_id,
        partition_id=message.partition_id,
        lease_id=message.lease_id,
    ),
)
assert answer.status_code == 200, answer.content
empty = pop.sync_detailed(QUEUE, client=client, batch=10)
sys.stdout.write(json.dumps([message.data, int(empty.status_code)]))

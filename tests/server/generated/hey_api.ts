// A client by @hey-api/openapi-ts: pushes, pops, acks, and pops again.
import { client } from "./hey/client.gen.js";
import { ack, pop, push } from "./hey/sdk.gen.js";

declare const process: { argv: string[] };

client.setConfig({ baseUrl: process.argv[2] });
const path = { queue: "hey 1/ü" };
const pushed = await push({ body: { items: [{ queue: path.queue, payload: { n: 1 } }] } });
if (pushed.error) throw new Error(JSON.stringify(pushed.error));
const popped = await pop({ path });
const message = popped.data?.messages[0];
if (!message) throw new Error("nothing was popped");
const { transactionId, partitionId, leaseId } = message;
const acked = await ack({ body: { transactionId, partitionId, leaseId } });
if (!acked.data || !("success" in acked.data)) throw new Error("the ack was refused");
const empty = await pop({ path, query: { batch: 10 } });
console.log(JSON.stringify([message.data, empty.response?.status]));

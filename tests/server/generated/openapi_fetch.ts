// A client by openapi-typescript and openapi-fetch: pushes, pops, acks, and pops again.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const path = { queue: "fetch 1/ü" };
const pushed = await client.POST("/api/v1/push", {
  body: { items: [{ queue: path.queue, payload: { n: 1 } }] },
});
if (pushed.error) throw new Error(pushed.error.error);
const popped = await client.GET("/api/v1/pop/queue/{queue}", { params: { path } });
const message = popped.data?.messages[0];
if (!message) throw new Error("nothing was popped");
const acked = await client.POST("/api/v1/ack", {
  body: {
    transactionId: message.transactionId,
    partitionId: message.partitionId,
    leaseId: message.leaseId,
    status: "completed",
  },
});
if (!acked.data?.success) throw new Error("the ack was refused");
const empty = await client.GET("/api/v1/pop/queue/{queue}", {
  params: { path, query: { batch: 10 } },
});
console.log(JSON.stringify([message.data, empty.response.status]));

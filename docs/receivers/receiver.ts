// SPDX-License-Identifier: Apache-2.0

// A receiver of webhooks: WEBHOOK_SECRET=whsec_… node receiver.ts
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";

type Event = { id: string; type: string; timestamp: string; data: Record<string, unknown> };

// authentic tells whether the service signed these bytes.
function authentic(body: Buffer, signature: string, secret: string): boolean {
  const digest = createHmac("sha256", secret).update(body).digest("hex"); // the whole secret, whsec_ included
  const want = Buffer.from("sha256=" + digest);
  const got = Buffer.from(signature);
  return want.length === got.length && timingSafeEqual(want, got); // in constant time
}

// handle is yours. An event may come twice: remember the ids that you handled.
async function handle(event: Event): Promise<void> {
  console.log(event.type, event.id);
}

// raw is the body as it came, before any parsing. With Express this is what
// express.raw({ type: "application/json" }) gives.
async function raw(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > 4 << 20) throw new Error("too large");
    parts.push(part);
  }
  return Buffer.concat(parts);
}

const secret = process.env.WEBHOOK_SECRET ?? "";
if (secret === "") throw new Error("set WEBHOOK_SECRET");

createServer(async (request, response) => {
  let status = 204;
  try {
    const body = await raw(request);
    if (request.method !== "POST" || request.url !== "/hook") status = 404;
    else if (!authentic(body, String(request.headers["x-service-signature"] ?? ""), secret)) status = 401;
    else await handle(JSON.parse(body.toString("utf8")) as Event);
  } catch (error) {
    console.error(error);
    status = 500; // it comes again
  }
  response.writeHead(status).end();
}).listen(Number(process.env.PORT ?? 3000), "127.0.0.1");

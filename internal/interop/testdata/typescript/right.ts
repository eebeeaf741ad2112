// SPDX-License-Identifier: Apache-2.0

// Calls that must compile, with the clients of both generators.
import createClient from "openapi-fetch";
import type { paths } from "./openapi";
import { createDomain, createMailbox, createWebhook, send } from "./hey";
import type { Message, SendRequest } from "./hey";

const api = createClient<paths>({ baseUrl: "http://localhost" });

const mail: SendRequest = {
  from_email: "shop@shop.test",
  to: ["customer@example.com"],
  subject: "Your order",
  text: "Thank you.",
  metadata: { order: 7 },
};

export async function withFetch(): Promise<string> {
  const sent = await api.POST("/api/v1/outbound/send", { body: mail });
  await api.POST("/api/v1/domains", { body: { name: "shop.test" } });
  await api.POST("/api/v1/mailboxes", { body: { domain_id: "dom_1", local_part: "orders", quota_mb: 100 } });
  if (!sent.data) throw new Error(sent.error.detail);
  return sent.data.id;
}

export async function withHey(): Promise<string> {
  const sent = await send({ body: mail });
  await createDomain({ body: { name: "shop.test" } });
  await createMailbox({ body: { domain_id: "dom_1", local_part: "orders" } });
  await createWebhook({ body: { url: "https://shop.test/hook", events: ["bounce", "delivery_status"] } });
  if (!sent.data) throw new Error("not sent");
  return sent.data.id;
}

export const subject = (m: Message): string | null => m.subject;

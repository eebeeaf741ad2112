// SPDX-License-Identifier: Apache-2.0

// Calls that must not compile: tsc reports each directive whose next line has no error.
import createClient from "openapi-fetch";
import type { paths } from "./openapi";
import { createDomain, createMailbox, createWebhook, send } from "./hey";
import type { Message } from "./hey";

const api = createClient<paths>({ baseUrl: "http://localhost" });
const mail = { from_email: "shop@shop.test", to: ["customer@example.com"], subject: "Your order" };

// @ts-expect-error no such path
await api.POST("/api/v1/outbound/sent", { body: mail });
// @ts-expect-error no such method
await api.PUT("/api/v1/outbound/send", { body: mail });
// @ts-expect-error no body
await api.POST("/api/v1/outbound/send", {});
// @ts-expect-error no subject
await api.POST("/api/v1/outbound/send", { body: { from_email: "a@b.test", to: ["c@d.test"] } });
// @ts-expect-error one string as recipients
await api.POST("/api/v1/outbound/send", { body: { ...mail, to: "customer@example.com" } });
// @ts-expect-error a number as subject
await api.POST("/api/v1/outbound/send", { body: { ...mail, subject: 7 } });
// @ts-expect-error a string as quota
await api.POST("/api/v1/mailboxes", { body: { domain_id: "dom_1", local_part: "orders", quota_mb: "100" } });
// @ts-expect-error no name
await api.POST("/api/v1/domains", { body: {} });

// @ts-expect-error no recipients
await send({ body: { from_email: "a@b.test", subject: "Your order" } });
// @ts-expect-error a number as text
await send({ body: { ...mail, text: 7 } });
// @ts-expect-error no name
await createDomain({ body: {} });
// @ts-expect-error an unknown field, which openapi-fetch's generic parameter lets pass
await createDomain({ body: { name: "shop.test", nmae: "shop.test" } });
// @ts-expect-error no domain
await createMailbox({ body: { local_part: "orders" } });
// @ts-expect-error no such event
await createWebhook({ body: { url: "https://shop.test/hook", events: ["message.deliverd"] } });
// @ts-expect-error no such field
export const subject = (m: Message) => m.subjekt;

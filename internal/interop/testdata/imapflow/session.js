// SPDX-License-Identifier: Apache-2.0
// Sessions of imapflow with the service that dev.json describes.
"use strict";
const fs = require("node:fs");
const { EventEmitter } = require("node:events");
const { ImapFlow } = require("imapflow");

const dev = JSON.parse(fs.readFileSync(process.env.DEV, "utf8"));
const bob = dev.mailboxes[1];

/** connect opens a session of bob's, over TLS unless the options say otherwise. */
async function connect(options) {
  const client = new ImapFlow({
    host: "localhost",
    port: options && options.secure === false ? dev.ports.imap : dev.ports.imaps,
    secure: true,
    auth: { user: bob.address, pass: bob.password },
    tls: { ca: fs.readFileSync(dev.ca_cert) },
    logger: false,
    clientInfo: { name: "interop" },
    disableAutoIdle: true,
    qresync: true,
    ...options,
  });
  await client.connect();
  return client;
}

/** Waits for events of a client's that satisfy a condition. */
class Events {
  constructor(client, names) {
    this.seen = [];
    this.more = new EventEmitter();
    for (const name of names) {
      client.on(name, (event) => {
        this.seen.push({ name, ...event });
        this.more.emit("more");
      });
    }
  }

  /** next waits for the first event with this name that fits, and takes it out. */
  async next(name, fits = () => true) {
    for (;;) {
      const i = this.seen.findIndex((e) => e.name === name && fits(e));
      if (i >= 0) {
        return this.seen.splice(i, 1)[0];
      }
      await new Promise((resolve) => this.more.once("more", resolve));
    }
  }
}

/** run runs a day's work; what it throws fails the program. */
function run(work) {
  work().then(
    () => process.exit(0),
    (err) => {
      console.error(err);
      process.exit(1);
    },
  );
}

module.exports = { dev, bob, connect, Events, run };

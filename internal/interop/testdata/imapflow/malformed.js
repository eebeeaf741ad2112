// SPDX-License-Identifier: Apache-2.0
// imapflow reads malformed mail: all that it makes of a message, and each part.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { dev, connect, run } = require("./session.js");

const alice = dev.mailboxes[0];

function leaves(node, all = []) {
  if (node.childNodes && !node.type.startsWith("message/")) {
    node.childNodes.forEach((child) => leaves(child, all));
  } else {
    all.push(node);
  }
  return all;
}

run(async () => {
  const c = await connect({ auth: { user: alice.address, pass: alice.password } });
  await c.mailboxOpen(process.env.FOLDER, { readOnly: true });
  const files = fs.readdirSync(process.env.CORPUS).sort();
  assert.equal(c.mailbox.exists, files.length);
  for (const [i, file] of files.entries()) {
    const text = fs.readFileSync(path.join(process.env.CORPUS, file)).map((b) => b || 0x80);
    const deep = / in each other| open/.test(file); // imapflow reads no lists so deep
    try {
      const m = await c.fetchOne(`${i + 1}`, { envelope: true, bodyStructure: !deep, size: true, source: true, headers: true });
      assert.ok(m.source.equals(text), "the source");
      assert.equal(m.size, text.length);
      assert.ok(m.envelope && m.headers);
      if (deep) {
        continue;
      }
      const parts = leaves(m.bodyStructure).slice(0, 10);
      for (const p of parts) {
        const id = p.part || "1";
        const got = await c.fetchOne(`${i + 1}`, { bodyParts: [id, `${id}.mime`] });
        assert.equal((got.bodyParts.get(id) || "").length, p.size, `part ${id}`);
      }
      const first = await c.download(`${i + 1}`, parts[0].part || "1");
      for await (const chunk of first.content) {
        assert.ok(chunk.length > 0);
      }
    } catch (err) {
      throw new Error(`message ${i + 1}, ${file}: ${err.message}`, { cause: err });
    }
  }
  await c.logout();
});

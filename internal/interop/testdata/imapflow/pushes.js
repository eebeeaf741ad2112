// SPDX-License-Identifier: Apache-2.0
// imapflow idles and is told of what another session does; coming back, it
// learns by QRESYNC what happened meanwhile.
"use strict";
const assert = require("node:assert/strict");
const { connect, Events, run } = require("./session.js");

const note = (subject) => `From: ann@example.net\r\nSubject: ${subject}\r\n\r\n${subject}\r\n`;

async function pushed(options, vanished) {
  const watcher = await connect(options);
  const other = await connect(options);
  const events = new Events(watcher, ["exists", "expunge", "flags"]);
  const box = await watcher.mailboxOpen("Drafts");
  await other.mailboxOpen("Drafts");
  assert.equal(box.exists, 0);
  const idling = watcher.idle();
  const uids = [];
  for (const subject of ["one", "two", "three"]) {
    uids.push((await other.append("Drafts", note(subject))).uid);
    const e = await events.next("exists", (x) => x.count === uids.length);
    assert.equal(e.path, "Drafts");
  }
  await other.messageFlagsAdd(`${uids[1]}`, ["\\Flagged", "$Work"], { uid: true });
  const flagged = await events.next("flags", (e) => e.flags.has("$Work"));
  assert.equal(flagged.seq, 2);
  assert.ok(flagged.flags.has("\\Flagged") && (!vanished || flagged.uid === uids[1] && flagged.modseq > 0n));
  await other.messageDelete(`${uids[0]}`, { uid: true });
  const gone = await events.next("expunge");
  assert.deepEqual(vanished ? [gone.vanished, gone.uid] : [gone.vanished, gone.seq], [vanished, vanished ? uids[0] : 1]);
  await other.messageMove(`${uids[2]}`, "Trash", { uid: true });
  const moved = await events.next("expunge");
  assert.equal(vanished ? moved.uid : moved.seq, vanished ? uids[2] : 2);
  assert.ok(watcher.idling);
  const [left] = await watcher.fetchAll("1:*", { envelope: true, flags: true }); // breaks the IDLE
  await idling;
  assert.deepEqual([left.uid, left.envelope.subject], [uids[1], "two"]);

  await other.messageDelete("1:*", { uid: true });
  await other.logout();
  await watcher.logout();
}

async function resynced() {
  const c = await connect();
  const box = await c.mailboxOpen("Junk");
  for (let n = 1; n <= 6; n++) {
    await c.append("Junk", note(`offer ${n}`));
  }
  const known = (await c.status("Junk", { highestModseq: true })).highestModseq;
  await c.mailboxClose();

  const other = await connect();
  await other.mailboxOpen("Junk");
  await other.messageFlagsAdd("2", ["\\Seen"], { uid: true });
  await other.messageDelete("3:4", { uid: true });
  await other.append("Junk", note("offer 7"));
  await other.logout();

  const events = new Events(c, ["expunge", "flags"]);
  const back = await c.mailboxOpen("Junk", { changedSince: known, uidValidity: box.uidValidity });
  assert.equal(back.exists, 5);
  assert.ok(back.highestModseq > known);
  assert.deepEqual(events.seen.map((e) => `${e.name} ${e.uid} ${e.earlier || ""} ${e.flags ? [...e.flags] : ""}`.trim()).sort(), [
    "expunge 3 true", "expunge 4 true", "flags 2  \\Seen", "flags 7",
  ]);
  await c.logout();
}

run(async () => {
  await pushed({}, true);
  await pushed({ qresync: false, disableCompression: true }, false);
  await resynced();
});

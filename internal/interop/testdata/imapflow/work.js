// SPDX-License-Identifier: Apache-2.0
// imapflow reads, searches, flags, copies, moves and deletes.
"use strict";
const assert = require("node:assert/strict");
const { bob, connect, run } = require("./session.js");

const letter = [
  "From: =?utf-8?q?J=C3=BCrgen?= <juergen@example.org>",
  "To: bob@demo.test, Team: a@example.org, b@example.org;",
  "Subject: =?iso-8859-1?q?Gr=FC=DFe?= from the sea",
  "Date: Tue, 3 Mar 2026 23:30:00 -0500",
  "Message-ID: <letter@example.org>",
  "X-Colour: dark blue",
  "MIME-Version: 1.0",
  "Content-Type: multipart/mixed; boundary=outer",
  "",
  "--outer",
  "Content-Type: text/plain; charset=iso-8859-1",
  "Content-Transfer-Encoding: quoted-printable",
  "",
  "Gr=FC=DFe vom Meer: xylo=",
  "phone",
  "--outer",
  "Content-Type: text/plain; charset=iso-2022-jp",
  "Content-Transfer-Encoding: base64",
  "",
  Buffer.from("\x1b$BF|K\\8l\x1b(B", "latin1").toString("base64"),
  "--outer",
  "Content-Type: message/rfc822",
  "",
  "From: inner@example.org",
  "Subject: The inner one",
  "Content-Type: multipart/alternative; boundary=inner",
  "",
  "--inner",
  "",
  "inner text",
  "--inner",
  "Content-Type: text/html",
  "",
  "<p>inner html</p>",
  "--inner--",
  "--outer",
  "Content-Type: application/octet-stream",
  "Content-Transfer-Encoding: base64",
  "Content-Disposition: attachment; filename*0*=utf-8''Gr%C3%BC; filename*1*=%C3%9Fe.bin",
  "",
  Buffer.alloc(200_000, "\0\x01\xfe\xff").toString("base64").replace(/.{76}/g, "$&\r\n"),
  "--outer--",
  "",
].join("\r\n");

const note = (n, more = "") =>
  `From: ann@example.net\r\nTo: bob@demo.test\r\nCc: carl@example.net\r\nBcc: dora@example.net\r\nSubject: note ${n}\r\nMessage-ID: <n${n}@example.net>\r\n` +
  `Date: Thu, 0${n} Jan 2026 12:00:00 +0000\r\n${more}\r\nThis is number ${n}.\r\n`;

async function all(client, range, query, options) {
  return await client.fetchAll(range, query, options);
}

async function text(download) {
  const chunks = [];
  for await (const chunk of download.content) {
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function folders(c) {
  const list = await c.list({ statusQuery: { messages: true, unseen: true, uidNext: true, size: true, highestModseq: true } });
  const special = Object.fromEntries(list.filter((f) => f.specialUse).map((f) => [f.specialUse, f.path]));
  assert.deepEqual(special, {
    "\\Inbox": "INBOX", "\\Sent": "Sent", "\\Drafts": "Drafts", "\\Junk": "Junk", "\\Trash": "Trash", "\\Archive": "Archive",
  });
  for (const f of list) {
    assert.ok(f.listed && f.subscribed && f.delimiter === "/" && f.specialUseSource === (f.path === "INBOX" ? undefined : "extension") || f.path === "INBOX", f.path);
    assert.equal(f.status.messages, 0, f.path);
    assert.equal(f.status.size, 0, f.path);
    assert.ok(f.status.highestModseq >= 1n, f.path);
  }

  const made = await c.mailboxCreate(["Projekte", "Grüße & 日本語 🙂"]);
  assert.ok(made.created && made.mailboxId, "CREATE tells the id");
  assert.equal((await c.mailboxCreate(made.path)).created, false);
  assert.equal((await c.mailboxOpen(made.path)).mailboxId, made.mailboxId);
  assert.equal(await c.mailboxUnsubscribe(made.path), true);
  assert.ok(!(await c.list()).find((f) => f.path === made.path).subscribed);
  assert.equal(await c.mailboxSubscribe(made.path), true);
  await c.mailboxClose();
  const renamed = await c.mailboxRename(made.path, 'Projekte/"quoted" \\ & more');
  const found = (await c.list()).find((f) => f.path === renamed.newPath);
  assert.ok(found && found.subscribed, "RENAME takes the subscription along");
  assert.deepEqual((await c.listTree()).folders.find((f) => f.name === "Projekte").folders.map((f) => f.name), ['"quoted" \\ & more']);
  assert.equal((await c.mailboxOpen(renamed.newPath)).mailboxId, made.mailboxId);
  await c.mailboxDelete(renamed.newPath);
  await assert.rejects(c.mailboxOpen(renamed.newPath), (err) => err.mailboxMissing === true);

  const quota = await c.getQuota();
  assert.ok(quota.storage.limit > 0 && quota.storage.usage === 0, JSON.stringify(quota));
}

async function appended(c) {
  const box = await c.mailboxOpen("INBOX");
  assert.ok(box.uidValidity > 0n && box.highestModseq > 0n && box.permanentFlags.has("\\*") && !box.noModseq, "SELECT");
  assert.equal(box.exists, 0);
  const first = await c.append("INBOX", letter, ["\\Flagged", "$Work"], new Date("2020-02-29T23:59:58Z"));
  assert.deepEqual([first.uid, first.seq, first.uidValidity], [1, 1, box.uidValidity]);
  for (let n = 1; n <= 5; n++) {
    const more = n > 2 ? `In-Reply-To: <n${n - 1}@example.net>\r\n` : "";
    await c.append("INBOX", note(n, more), n === 5 ? [] : ["\\Seen"], new Date(Date.UTC(2026, 0, n, 12)));
  }
  const binary = Buffer.from("Subject: binary\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\na\0b", "latin1");
  assert.equal((await c.append("INBOX", binary)).uid, 7);
}

async function fetched(c) {
  const [m] = await all(c, "1", {
    uid: true, flags: true, envelope: true, bodyStructure: true, internalDate: true, size: true, source: true, threadId: true, labels: true,
    headers: ["X-Colour", "Subject"], bodyParts: ["1", "TEXT", "3.HEADER", { key: "1", start: 3, maxLength: 4 }],
  });
  assert.equal(m.source.toString("latin1"), letter);
  assert.equal(m.size, letter.length);
  assert.deepEqual([...m.flags].sort(), ["$Work", "\\Flagged"]);
  assert.equal(m.labels, undefined);
  assert.match(m.emailId, /^M/);
  assert.ok(m.threadId && m.id && m.modseq > 0n);
  assert.equal(m.internalDate.toISOString(), "2020-02-29T23:59:58.000Z");
  assert.equal(m.envelope.subject, "Grüße from the sea");
  assert.deepEqual(m.envelope.from, [{ name: "Jürgen", address: "juergen@example.org" }]);
  assert.equal(m.envelope.messageId, "<letter@example.org>");
  assert.equal(m.envelope.date.toISOString(), "2026-03-04T04:30:00.000Z");
  assert.match(m.headers.toString(), /^Subject: .*\r\nX-Colour: dark blue\r\n\r\n$/s);
  assert.match(m.bodyParts.get("3.header").toString(), /^From: inner@example.org\r\nSubject: The inner one\r\n/);
  const parts = m.bodyStructure.childNodes;
  assert.deepEqual(parts.map((p) => [p.part, p.type]), [["1", "text/plain"], ["2", "text/plain"], ["3", "message/rfc822"], ["4", "application/octet-stream"]]);
  assert.equal(parts[2].envelope.subject, "The inner one");
  assert.deepEqual(parts[2].childNodes[0].childNodes.map((p) => p.part), ["3.1", "3.2"]);
  assert.equal(parts[3].disposition, "attachment");
  assert.equal(parts[3].dispositionParameters.filename, "Grüße.bin");

  const one = await c.download("1", "1", { uid: true });
  assert.equal((await text(one)).toString(), "Grüße vom Meer: xylophone");
  assert.equal((await text(await c.download("1", "2", { uid: true }))).toString(), "日本語");
  const file = await c.download("1", "4", { uid: true, chunkSize: 10_000 });
  assert.equal(file.meta.filename, "Grüße.bin");
  assert.ok((await text(file)).equals(Buffer.alloc(200_000, "\0\x01\xfe\xff")), "the file is as it was");
  assert.equal((await text(await c.download("1", undefined, { uid: true }))).toString("latin1"), letter);
  const many = await c.downloadMany("1", ["1", "3.1", "3.2"], { uid: true });
  assert.deepEqual(["1", "3.1", "3.2"].map((p) => many[p].content.toString("latin1")), ["Grüße vom Meer: xylophone", "inner text", "<p>inner html</p>"]);
  const decoded = await c.fetchOne("1", { bodyParts: ["4"] }, { uid: true, binary: true });
  assert.ok(decoded.binaryParts.has("4") && decoded.bodyParts.get("4").equals(Buffer.alloc(200_000, "\0\x01\xfe\xff")), "BINARY[4]");
  const plain = await c.fetchOne("7", { bodyParts: ["1"] }, { uid: true, binary: true });
  assert.equal(plain.bodyParts.get("1").toString("latin1"), "a\0b");
  assert.equal(await c.fetchOne("99", { uid: true }, { uid: true }), false);
}

async function searched(c) {
  const emailId = (await c.fetchOne("3", { uid: true }, { uid: true })).emailId;
  const threadId = (await c.fetchOne("3", { threadId: true }, { uid: true })).threadId;
  const modseq = (await c.fetchOne("6", { uid: true }, { uid: true })).modseq;
  for (const [query, want] of [
    [{ all: true }, [1, 2, 3, 4, 5, 6, 7]],
    [{ seen: false }, [1, 6, 7]],
    [{ seen: true, flagged: false, answered: false, deleted: false, draft: false }, [2, 3, 4, 5]],
    [{ flagged: true }, [1]],
    [{ keyword: "$Work" }, [1]],
    [{ unKeyword: "$Work", seen: false }, [6, 7]],
    [{ from: "Jürgen" }, [1]],
    [{ from: "ann@", to: "bob", cc: "carl", bcc: "dora", subject: "NOTE 2" }, [3]],
    [{ subject: "grüße" }, [1]],
    [{ body: "xylophone" }, [1]],
    [{ body: "日本語" }, [1]],
    [{ text: "number 4" }, [5]],
    [{ text: "dark blue" }, [1]],
    [{ larger: 10_000 }, [1]],
    [{ smaller: 10_000, uid: "1:3" }, [2, 3]],
    [{ seq: "2:3,5" }, [2, 3, 5]],
    [{ uid: "6:*" }, [6, 7]],
    [{ modseq }, [6, 7]],
    [{ emailId }, [3]],
    [{ threadId }, [3]],
    [{ on: new Date(Date.UTC(2026, 0, 2)) }, [3]],
    [{ since: new Date(Date.UTC(2026, 0, 3)) }, [4, 5, 6, 7]],
    [{ before: new Date(Date.UTC(2026, 0, 3)) }, [1, 2, 3]],
    [{ sentOn: new Date(Date.UTC(2026, 0, 4)) }, [5]],
    [{ sentSince: new Date(Date.UTC(2026, 0, 5)) }, [1, 6]],
    [{ sentBefore: new Date(Date.UTC(2026, 0, 2)), seen: true }, [2]],
    [{ header: { "X-Colour": true } }, [1]],
    [{ header: { "message-id": "<n4@example.net>" } }, [5]],
    [{ not: { from: "ann" } }, [1, 7]],
    [{ or: [{ subject: "note 1" }, { subject: "note 3" }, { flagged: true }] }, [1, 2, 4]],
    [{ or: [{ flagged: true, seen: true }, { not: { seen: true }, larger: 100_000 }] }, [1]],
    [{ subject: "nothing of the kind" }, []],
  ]) {
    assert.deepEqual(await c.search(query, { uid: true }), want, JSON.stringify(query, (_, v) => (typeof v === "bigint" ? `${v}` : v)));
  }
  const figures = await c.search({ seen: true }, { uid: true, returnOptions: ["MIN", "MAX", "COUNT", "ALL"] });
  assert.deepEqual(figures, { min: 2, max: 5, count: 4, all: "2:5" });
  const page = await c.search({ seen: true }, { uid: true, returnOptions: ["COUNT", { partial: "2:2" }] });
  assert.deepEqual(page, { count: 4, partial: { range: "2:2", messages: "3" } });
}

async function changed(c) {
  const before = (await c.status("INBOX", { highestModseq: true })).highestModseq;
  assert.equal(await c.messageFlagsAdd("2:3", ["\\Answered", "$Forwarded"], { uid: true }), true);
  assert.equal(await c.messageFlagsRemove({ subject: "note 1" }, ["\\Seen"], { uid: true }), true);
  assert.equal(await c.messageFlagsSet("4", ["\\Draft"], { uid: true }), true);
  assert.equal(await c.setFlagColor("4", "purple", { uid: true }), true);
  const now = await all(c, "1:*", { flags: true }, { uid: true, changedSince: before });
  assert.deepEqual(now.map((m) => [m.uid, [...m.flags].sort().join(" "), m.flagColor]), [
    [2, "$Forwarded \\Answered", undefined], [3, "$Forwarded \\Answered \\Seen", undefined], [4, "$MailFlagBit0 $MailFlagBit2 \\Draft \\Flagged", "purple"],
  ]);

  const copied = await c.messageCopy("2,4", "Archive", { uid: true });
  assert.deepEqual([...copied.uidMap], [[2, 1], [4, 2]]);
  const gone = [];
  c.on("expunge", (e) => gone.push(e));
  const moved = await c.messageMove({ subject: "note 2" }, "Trash", { uid: true });
  assert.deepEqual([...moved.uidMap], [[3, 1]]);
  assert.equal(await c.messageDelete("6:7", { uid: true }), true);
  assert.deepEqual(gone.map((e) => [e.path, e.uid, e.vanished]), [["INBOX", 3, true], ["INBOX", 6, true], ["INBOX", 7, true]]);
  const st = await c.status("INBOX", { messages: true, recent: false, uidNext: true, uidValidity: true, unseen: true, highestModseq: true, size: true, deleted: true });
  assert.deepEqual([st.messages, st.uidNext, st.unseen, st.deleted], [4, 8, 3, 0]);
  assert.equal(st.uidValidity, c.mailbox.uidValidity);
  assert.equal(await c.messageCopy("1", "Nowhere", { uid: true }), false);
  const lock = await c.getMailboxLock("Archive", { readOnly: true });
  assert.deepEqual((await all(c, "1:*", { flags: true })).map((m) => m.uid), [1, 2]);
  assert.ok(c.mailbox.readOnly);
  lock.release();
}

run(async () => {
  await assert.rejects(connect({ auth: { user: bob.address, pass: "Wrong-1-Password" } }), (err) => err.authenticationFailed);
  for (const loginMethod of ["LOGIN", "AUTH=PLAIN"]) {
    const s = await connect({ secure: false, doSTARTTLS: true, auth: { user: bob.address, pass: bob.password, loginMethod } });
    assert.ok(s.secureConnection && s.authenticated);
    await s.logout();
  }
  await assert.rejects(connect({ secure: false, doSTARTTLS: false }));

  const c = await connect();
  for (const name of ["QRESYNC", "CONDSTORE", "UTF8=ACCEPT", "IMAP4REV2"]) {
    assert.ok([...c.enabled].some((e) => e.toUpperCase() === name), `${name} is not enabled`);
  }
  assert.ok(c.stats && c._deflate, "COMPRESS is used");
  assert.equal(c.serverInfo.name, "Mailstead");
  await folders(c);
  await appended(c);
  await fetched(c);
  await searched(c);
  await changed(c);
  await c.logout();

  // The same without what an old client lacks.
  const old = await connect({ disableCompression: true, disableAutoEnable: true, disableBinary: true, disableIMAP4rev2: true, qresync: false });
  assert.ok(!old._deflate && old.enabled.size === 0);
  const box = await old.mailboxOpen("INBOX");
  assert.equal(box.exists, 4);
  assert.deepEqual((await all(old, "1:*", { envelope: true })).map((m) => m.envelope.subject), ["Grüße from the sea", "note 1", "note 3", "note 4"]);
  assert.deepEqual(await old.search({ recent: true }), []);
  assert.deepEqual(await old.search({ subject: "Grüße" }, { uid: true }), [1]);
  assert.equal((await text(await old.download("1", "2", { uid: true }))).toString(), "日本語");
  assert.ok((await old.mailboxCreate("Übung")).created);
  assert.ok((await old.list()).some((f) => f.path === "Übung" && f.subscribed));
  await old.mailboxDelete("Übung");
  await old.logout();
});

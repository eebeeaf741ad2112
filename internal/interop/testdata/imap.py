# SPDX-License-Identifier: Apache-2.0
# imaplib through a session's life, in clear until STARTTLS and with TLS.
import email
import imaplib
import json
import os
import re
import ssl
import time

dev = json.load(open(os.environ["DEV"]))
bob = dev["mailboxes"][1]
tls = ssl.create_default_context(cafile=dev["ca_cert"])


def ok(answer):
    assert answer[0] == "OK", answer
    return answer[1]


clear = imaplib.IMAP4("localhost", dev["ports"]["imap"])
assert "LOGINDISABLED" in clear.capabilities and "STARTTLS" in clear.capabilities, clear.capabilities
try:
    clear.login(bob["address"], bob["password"])
    raise AssertionError("LOGIN in clear was taken")
except imaplib.IMAP4.error:
    pass
ok(clear.starttls(tls))
ok(clear.login(bob["address"], bob["password"]))
assert clear.logout()[0] == "BYE"

try:
    imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=tls).login(bob["address"], "Wrong-1-Password")
    raise AssertionError("a wrong password was taken")
except imaplib.IMAP4.error:
    pass

c = imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=tls)
plain = "\0%s\0%s" % (bob["address"], bob["password"])
ok(c.authenticate("PLAIN", lambda _: plain.encode()))
names = b"\n".join(ok(c.list()))
for special in (b"\\Sent", b"\\Drafts", b"\\Junk", b"\\Trash", b"\\Archive"):
    assert special in names, names
ok(c.namespace())
ok(c.create('"Projects/M&APw-nchen"'))
ok(c.subscribe('"Projects/M&APw-nchen"'))
assert any(b"M&APw-nchen" in line for line in ok(c.lsub(pattern="*")))
ok(c.rename('"Projects/M&APw-nchen"', "Projects/Bonn"))

ok(c.select("Projects/Bonn"))
for n in range(3):
    text = "From: me@example.net\r\nSubject: kept by imaplib %d\r\n\r\nnumber %d, grüße\r\n" % (n, n)
    done = ok(c.append("Projects/Bonn", "(\\Seen)", imaplib.Time2Internaldate(time.time()), text.encode()))
    assert b"APPENDUID" in done[0], done
ok(c.noop())
assert ok(c.search(None, "SEEN", "SUBJECT", '"imaplib 1"')) == [b"2"]
assert ok(c.uid("SEARCH", "CHARSET", "UTF-8", "BODY", '"number 2"'))[0] == b"3"

got = ok(c.fetch("2", "(UID FLAGS RFC822.SIZE INTERNALDATE BODY.PEEK[])"))
assert b"UID 2" in got[0][0] and b"\\Seen" in got[0][0], got
assert email.message_from_bytes(got[0][1])["Subject"] == "kept by imaplib 1"
assert ok(c.fetch("1", "(BODY.PEEK[TEXT]<0.6>)"))[0][1] == b"number"
assert b'"kept by imaplib 0"' in ok(c.fetch("1", "(ENVELOPE)"))[0]
assert b'"TEXT" "PLAIN"' in ok(c.fetch("1", "(BODYSTRUCTURE)"))[0].upper()

flags = ok(c.store("1:2", "+FLAGS", "(\\Flagged $Work)"))
assert len(flags) == 2 and all(b"\\Flagged" in f and b"$Work" in f for f in flags), flags
assert ok(c.search(None, "KEYWORD", "$Work")) == [b"1 2"]
ok(c.copy("1", "Trash"))
ok(c.uid("MOVE", "2", "Archive"))
ok(c.store("1", "+FLAGS", "\\Deleted"))
ok(c.expunge())
assert ok(c.select("Projects/Bonn")) == [b"1"]
assert re.search(rb"MESSAGES 1 .*UIDNEXT 4|UIDNEXT 4.*MESSAGES 1", ok(c.status("Projects/Bonn", "(MESSAGES UIDNEXT)"))[0])
ok(c.close())
ok(c.delete("Projects/Bonn"))
assert c.select("Projects/Bonn")[0] == "NO"
assert c.logout()[0] == "BYE"

# Names in UTF-8, the quota, and folders with their figures in one command.
u = imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=tls)
ok(u.login(bob["address"], bob["password"]))
ok(u.enable("UTF8=ACCEPT"))
ok(u.create('"Grüße"'))
assert '"Grüße"'.encode() in b"\n".join(ok(u.list())), "a name in UTF-8"
ok(u.select('"Grüße"'))
ok(u.unselect())
roots, quotas = ok(u.getquotaroot("INBOX"))
assert roots == [b'INBOX ""'] and re.fullmatch(rb'"" \(STORAGE \d+ \d+\)', quotas[0]), (roots, quotas)
assert ok(u.getquota('""')) == quotas
ok(u._simple_command("LIST", '""', '"Gr*"', "RETURN", "(STATUS (MESSAGES SIZE MAILBOXID))"))
assert u.response("STATUS")[1][0].startswith('"Grüße" (MESSAGES 0 SIZE 0 MAILBOXID (F'.encode())
ok(u.delete('"Grüße"'))
assert u.logout()[0] == "BYE"

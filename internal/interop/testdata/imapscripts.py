# SPDX-License-Identifier: Apache-2.0
# imaplib as people's scripts use it: backups, sorters, watchers.
import datetime
import email.message
import email.policy
import imaplib
import json
import os
import ssl

dev = json.load(open(os.environ["DEV"]))
bob = dev["mailboxes"][1]
tls = ssl.create_default_context(cafile=dev["ca_cert"])


def ok(answer):
    assert answer[0] == "OK", answer
    return answer[1]


def session():
    c = imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=tls)
    ok(c.login(bob["address"], bob["password"]))
    return c


with session() as c:
    ok(c.xatom("ID", '("name" "a script" "version" "1")'))
    assert b"Mailstead" in c.response("ID")[1][0]
    ok(c.create('"Scripts and more"'))
    ok(c.create('"Scripts and more/Sp&AOQ-ter"'))
    ok(c.subscribe('"Scripts and more"'))
    assert len(ok(c.list('"Scripts and more"', "/*"))) == 1
    assert len(ok(c.list('""', '"Scripts*"'))) == 2
    assert b"Scripts and more" in ok(c.lsub('""', '"Scr%"'))[0]
    ok(c.unsubscribe('"Scripts and more"'))

    # Messages of given dates and flags, one of them large.
    when = datetime.datetime(2019, 12, 31, 23, 59, 58, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    sent = []
    for n, subject in enumerate(("Grüße", "Rechnung 2", "Re: Rechnung 2", "large")):
        m = email.message.EmailMessage()
        m["From"], m["To"], m["Subject"] = "Jörg <joerg@example.net>", "bob@demo.test", subject
        m["Message-ID"], m["Date"] = "<s%d@example.net>" % n, "Wed, 0%d Jan 2020 10:00:00 +0000" % (n + 1)
        if n == 2:
            m["In-Reply-To"] = "<s1@example.net>"
        m.set_content("Schöne Grüße, number %d\n" % n * (50_000 if subject == "large" else 1))
        raw = m.as_bytes(policy=email.policy.SMTP)
        sent.append(imaplib.MapCRLF.sub(imaplib.CRLF, raw))
        ok(c.append('"Scripts and more"', "\\Seen" if n % 2 else None, when + datetime.timedelta(days=n), raw))
    assert ok(c.select('"Scripts and more"')) == [b"4"]
    assert c.response("UIDVALIDITY")[1][0].isdigit() and c.response("UIDNEXT")[1] == [b"5"]
    ok(c.recent())

    # A backup.
    for num in ok(c.search(None, "ALL"))[0].split():
        got = ok(c.fetch(num, "(BODY.PEEK[])"))
        assert got[0][1] == sent[int(num) - 1], num
    times = ok(c.fetch("1:*", "(INTERNALDATE RFC822.HEADER)"))
    assert imaplib.Internaldate2tuple(times[0][0])[:6] == when.astimezone().timetuple()[:6], times
    heads = ok(c.uid("FETCH", "1:*", "(BODY.PEEK[HEADER.FIELDS (SUBJECT FROM)])"))
    assert [b"Rechnung" in h[1] for h in heads if isinstance(h, tuple)] == [False, True, True, False]

    # Searches as scripts spell them.
    for want, terms in (
        (b"1 3", ("UNSEEN",)), (b"2 4", ("SEEN",)), (b"1 3", ('(UNSEEN SINCE "01-Jan-2019")',)), (b"2 3", ("SUBJECT", '"rechnung"')),
        (b"2 3", ("SUBJECT", "Rechnung")), (b"1 4", ("NOT", "SUBJECT", "Rechnung")), (b"2", ("HEADER", "Message-ID", '"<s1@example.net>"')),
        (b"1 2", ('(OR HEADER Message-ID "<s0@example.net>" HEADER Message-ID "<s1@example.net>")',)), (b"4", ("LARGER", "100000")),
        (b"2 3 4", ("UID", "2:*")), (b"1", ("ON", "31-Dec-2019")), (b"2", ("SENTON", "02-Jan-2020")), (b"1 2 3 4", ("FROM", '"joerg@"')),
        (b"1 2 3 4", ("UNDELETED", "NOT", "KEYWORD", "$Done")), (b"", ("DELETED",)), (b"3", ("BODY", '"number 2"')), (b"2 3 4", ("2:4",)),
    ):
        assert ok(c.search(None, *terms))[0] == want, (terms, want, c.search(None, *terms))
    assert ok(c.search("UTF-8", "TEXT", '"number 3"'))[0] == b"4"
    c.literal = "Grüße".encode()
    assert ok(c.uid("SEARCH", "CHARSET", "UTF-8", "SUBJECT"))[0] == b"1"
    c.literal = "Schöne".encode("iso-8859-1")
    refused = c.uid("SEARCH", "CHARSET", "ISO-8859-1", "BODY")
    assert refused[0] == "NO" and b"BADCHARSET" in refused[1][0], refused
    assert ok(c.sort("(REVERSE DATE)", "UTF-8", "ALL"))[0] == b"4 3 2 1"
    assert ok(c.uid("SORT", "(SUBJECT SIZE)", "UTF-8", "ALL"))[0] == b"1 4 2 3"
    assert ok(c.thread("REFERENCES", "UTF-8", "ALL"))[0] == b"(1)(2 3)(4)"

    # Flags, copies, moves.
    assert b"\\Answered" in ok(c.store("2", "FLAGS", "(\\Answered $Done)"))[0]
    assert b"\\Seen" not in ok(c.fetch("2", "(FLAGS)"))[0]
    assert ok(c.store("1:2", "+FLAGS.SILENT", "\\Flagged")) == [None]
    assert b"$Done" not in ok(c.store("2", "-FLAGS", "($Done)"))[0]
    assert b"\\Seen" in ok(c.uid("STORE", "1:3", "+FLAGS", "(\\Seen)"))[-1]
    ok(c.copy("1:2", '"Scripts and more/Sp&AOQ-ter"'))
    assert c.copy("1", "Nowhere")[0] == "NO"
    ok(c.xatom("MOVE", "1", '"Scripts and more/Sp&AOQ-ter"'))
    assert c.response("EXPUNGE")[1] == [b"1"]
    ok(c.uid("MOVE", "2", "Trash"))
    ok(c.uid("STORE", "3:4", "+FLAGS", "(\\Deleted)"))
    ok(c.uid("EXPUNGE", "3"))
    assert c.response("EXPUNGE")[1] == [b"1", b"1"]  # the one that was moved, and this
    assert ok(c.expunge()) == [b"1"]
    ok(c.check())
    assert ok(c.status('"Scripts and more"', "(MESSAGES RECENT UNSEEN UIDNEXT UIDVALIDITY)"))[0].startswith(b'"Scripts and more" (MESSAGES 0 ')
    assert ok(c.select('"Scripts and more/Sp&AOQ-ter"', readonly=True)) == [b"3"]
    assert c.store("1", "+FLAGS", "\\Deleted")[0] == "NO"

    # A watcher: IDLE by hand where imaplib has none.
    ok(c.select("INBOX"))
    with session() as other:
        tag = c._new_tag()
        c.send(tag + b" IDLE\r\n")
        assert c.readline().startswith(b"+ ")
        ok(other.append("INBOX", None, None, b"Subject: wake up\r\n\r\nnow\r\n"))
        line = c.readline()
        assert line.endswith(b" EXISTS\r\n"), line
        c.send(b"DONE\r\n")
        while not (line := c.readline()).startswith(tag):
            pass
        assert line.startswith(tag + b" OK"), line
    newest = ok(c.uid("SEARCH", "SUBJECT", '"wake up"'))[0].split()[-1]
    ok(c.uid("STORE", newest, "+FLAGS", "(\\Deleted)"))
    ok(c.close())
    ok(c.delete('"Scripts and more/Sp&AOQ-ter"'))
    ok(c.delete('"Scripts and more"'))

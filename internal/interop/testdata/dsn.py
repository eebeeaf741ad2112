# SPDX-License-Identifier: Apache-2.0
# smtplib asks for reports, imaplib fetches them, and the email package takes
# them apart; then an application sends with its API key.
import email
import email.policy
import imaplib
import json
import os
import smtplib
import ssl
import time
from email.message import EmailMessage

dev = json.load(open(os.environ["DEV"]))
alice, bob = dev["mailboxes"]
tls = ssl.create_default_context(cafile=dev["ca_cert"])


def mail(sender, to, subject, **headers):
    m = EmailMessage()
    m["From"], m["To"], m["Subject"], m["Message-ID"] = sender, to, subject, "<%s@python.test>" % subject.replace(" ", ".")
    for name, value in headers.items():
        m["X-Mailstead-" + name.replace("_", "-")] = value
    m.set_content("Grüße aus Python.\n")
    return m


def arrived(box, subject):
    with imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=tls) as c:
        c.login(box["address"], box["password"])
        c.select("INBOX")
        for _ in range(600):
            found = c.search(None, "SUBJECT", '"%s"' % subject)[1][0].split()
            if found:
                return email.message_from_bytes(c.fetch(found[0], "(BODY.PEEK[])")[1][0][1], policy=email.policy.default)
            time.sleep(0.1)
            c.noop()
    raise AssertionError("%s never came" % subject)


with smtplib.SMTP_SSL("localhost", dev["ports"]["submissions"], context=tls, timeout=50) as s:
    s.login(alice["address"], alice["password"])
    assert s.has_extn("dsn")
    m = mail(alice["address"], "nobody@demo.test", "lost by python")
    s.sendmail(alice["address"], ["nobody@demo.test"], m.as_bytes(), mail_options=["RET=FULL", "ENVID=py+201"],
               rcpt_options=["NOTIFY=FAILURE,DELAY", "ORCPT=rfc822;no+2Bone@demo.test"])
    m = mail(alice["address"], bob["address"], "found by python")
    s.sendmail(alice["address"], [bob["address"]], m.as_bytes(), rcpt_options=["NOTIFY=SUCCESS"])

r = arrived(alice, "Undelivered: lost by python")
assert r.get_content_type() == "multipart/report" and r.get_param("report-type") == "delivery-status", r["Content-Type"]
assert r["In-Reply-To"] == "<lost.by.python@python.test>" and r["Auto-Submitted"] == "auto-replied" and r["Return-Path"] == "<>"
words, status, original = r.iter_parts()
assert "nobody@demo.test" in words.get_content() and "no mailbox" in words.get_content(), words
about, rcpt = status.get_payload()
assert about["Original-Envelope-Id"] == "py 1" and about["Reporting-MTA"] == "dns; mail.mailstead.test", about
assert rcpt["Original-Recipient"] == "rfc822; no+one@demo.test" and rcpt["Final-Recipient"] == "rfc822; nobody@demo.test", rcpt
assert rcpt["Action"] == "failed" and rcpt["Status"] == "5.1.1" and rcpt["Diagnostic-Code"].startswith("X-Mailstead; 550 5.1.1 "), rcpt
assert original.get_content_type() == "message/rfc822" and original.get_content()["Subject"] == "lost by python"

r = arrived(alice, "Delivered: found by python")
words, status, original = r.iter_parts()
assert status.get_payload()[1]["Action"] == "delivered" and original.get_content_type() == "text/rfc822-headers", r

with smtplib.SMTP("localhost", dev["ports"]["submission"], timeout=50) as s:
    s.starttls(context=tls)
    s.login("api", dev["api_key"])
    m = mail("Shop <orders@demo.test>", bob["address"], "by key", Metadata=json.dumps({"order": 7, "name": "Grüße " * 30}), Thread="order 7",
             Idempotency_Key="k1")
    ids = set()
    for _ in range(2):
        s.mail("bounces@demo.test")
        s.rcpt(bob["address"])
        code, text = s.data(m.as_bytes())
        assert code == 250, (code, text)
        ids.add(text)
    assert len(ids) == 1, ids
    try:
        s.send_message(mail("orders@elsewhere.example", bob["address"], "by key, as another"))
        raise AssertionError("a foreign sender was taken")
    except smtplib.SMTPSenderRefused as e:
        assert e.smtp_code == 550, e
    try:
        s.send_message(mail("orders@demo.test", bob["address"], "by key, badly", Schedule="tomorrow"))
        raise AssertionError("a bad time was taken")
    except smtplib.SMTPDataError as e:
        assert e.smtp_code == 554 and b"X-Mailstead-Schedule" in e.smtp_error, e

r = arrived(bob, "by key")
assert r["Return-Path"].startswith("<b-") and r["Return-Path"].endswith("@demo.test>"), r["Return-Path"]
assert r["Message-ID"] == "<by.key@python.test>" and "DKIM-Signature" in r and not [h for h in r.keys() if h.lower().startswith("x-mailstead")], r.keys()

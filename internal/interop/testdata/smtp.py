# SPDX-License-Identifier: Apache-2.0
# smtplib at the three listeners: what must pass, and what must be refused.
import json
import os
import smtplib
import ssl
from email.message import EmailMessage

dev = json.load(open(os.environ["DEV"]))
alice, bob = dev["mailboxes"]
tls = ssl.create_default_context(cafile=dev["ca_cert"])


def mail(subject, sender):
    m = EmailMessage()
    m["From"], m["To"], m["Subject"] = sender, bob["address"], subject
    m.set_content("Grüße aus Python.\n.\n..two dots\n")
    m.add_attachment(bytes(range(256)) * 100, maintype="application", subtype="octet-stream", filename="bytes ü.bin")
    return m


def refused(code, do):
    try:
        do()
    except smtplib.SMTPResponseException as e:
        assert e.smtp_code == code, e
    except smtplib.SMTPRecipientsRefused as e:
        assert all(c == code for c, _ in e.recipients.values()), e
    else:
        raise AssertionError("not refused with %d" % code)


with smtplib.SMTP("localhost", dev["ports"]["submission"], timeout=50) as s:
    s.ehlo()
    assert not s.has_extn("auth"), "AUTH is offered in clear"
    s.starttls(context=tls)
    s.ehlo()
    assert s.has_extn("auth") and s.has_extn("size") and s.has_extn("8bitmime") and s.has_extn("pipelining")
    refused(530, lambda: s.send_message(mail("by nobody", alice["address"])))
    refused(535, lambda: s.login(alice["address"], "Wrong-1-Password"))
    s.login(alice["address"], alice["password"])
    assert s.send_message(mail("by smtplib, STARTTLS", alice["address"])) == {}
    refused(550, lambda: s.send_message(mail("as someone else", "ceo@demo.test")))
    refused(550, lambda: s.sendmail(alice["address"], [bob["address"]], mail("as bob in From", bob["address"]).as_bytes()))

with smtplib.SMTP_SSL("localhost", dev["ports"]["submissions"], context=tls, timeout=50) as s:
    s.login(alice["address"], alice["password"])
    s.send_message(mail("by smtplib, TLS", "Alice <alice+python@demo.test>"))

with smtplib.SMTP("localhost", dev["ports"]["smtp"], timeout=50) as s:
    s.send_message(mail("by smtplib, to the MX", "someone@example.net"))
    some = s.sendmail("someone@example.net", [bob["address"], "nobody@demo.test"], b"From: someone@example.net\r\nSubject: to some\r\n\r\ntext\r\n")
    assert list(some) == ["nobody@demo.test"] and some["nobody@demo.test"][0] == 550, some
    refused(550, lambda: s.sendmail("someone@example.net", ["victim@example.org"], b"Subject: relay\r\n\r\n"))
    s.rset()
    assert s.verify(bob["address"])[0] in (252, 502), "VRFY tells who exists"
    assert s.noop()[0] == 250

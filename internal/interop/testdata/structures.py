# SPDX-License-Identifier: Apache-2.0
# Reads ENVELOPE, BODY, BODYSTRUCTURE and PREVIEW of every message of a folder by
# the grammar of RFC 3501 and not one octet otherwise.
import imaplib
import json
import os
import ssl

imaplib._MAXLINE = 10_000_000  # thousands of parts
dev = json.load(open(os.environ["DEV"]))
box = dev["mailboxes"][0]


class Wire:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fail(self, what):
        raise AssertionError("%s at %d: %r" % (what, self.at, self.data[max(0, self.at - 80) : self.at + 80]))

    def next(self):
        return self.data[self.at : self.at + 1]

    def eat(self, token):
        if not self.data.startswith(token, self.at):
            self.fail("no %r" % token)
        self.at += len(token)

    def sees(self, token):
        if self.data.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def number(self):
        start = self.at
        while self.next().isdigit():
            self.at += 1
        if start == self.at or self.at - start > 1 and self.data[start : start + 1] == b"0":
            self.fail("no number")
        return int(self.data[start : self.at])

    def string(self):
        if self.sees(b'"'):
            text = bytearray()
            while not self.sees(b'"'):
                if self.sees(b"\\") and self.next() not in (b'"', b"\\"):
                    self.fail("a backslash before something else")
                c = self.next()
                if not c or c in b"\r\n\0" or c > b"\x7f":
                    self.fail("not for a quoted string")
                text += c
                self.at += 1
            return bytes(text)
        self.eat(b"{")
        n = self.number()
        self.eat(b"}\r\n")
        text = self.data[self.at : self.at + n]
        if len(text) < n or b"\0" in text:
            self.fail("a bad literal")
        self.at += n
        return text

    def nstring(self):
        return None if self.sees(b"NIL") else self.string()

    def params(self):
        if self.sees(b"NIL"):
            return
        self.eat(b"(")
        while True:
            self.string()
            self.eat(b" ")
            self.string()
            if self.sees(b")"):
                return
            self.eat(b" ")

    def addresses(self):
        if self.sees(b"NIL"):
            return
        self.eat(b"(")
        group = False
        while True:
            self.eat(b"(")
            four = [self.nstring()]
            for _ in range(3):
                self.eat(b" ")
                four.append(self.nstring())
            self.eat(b")")
            if four[3] is None:  # a group begins or ends
                assert four[0] is None and four[1] is None and group == (four[2] is None), four
                group = not group
            if self.sees(b")"):
                assert not group, "a group without end"
                return

    def envelope(self):
        self.eat(b"(")
        for i in range(10):
            if 2 <= i <= 7:
                self.addresses()
            else:
                self.nstring()
            self.eat(b")" if i == 9 else b" ")

    def extension(self):
        self.eat(b" ")
        if not self.sees(b"NIL"):
            self.eat(b"(")
            self.string()
            self.eat(b" ")
            self.params()
            self.eat(b")")
        self.eat(b" ")
        if self.sees(b"("):
            self.string()
            while not self.sees(b")"):
                self.eat(b" ")
                self.string()
        else:
            self.nstring()
        self.eat(b" ")
        self.nstring()

    def body(self, extended):
        self.eat(b"(")
        if self.next() == b"(":
            while self.next() == b"(":
                self.body(extended)
            self.eat(b" ")
            self.string()
            if extended:
                self.eat(b" ")
                self.params()
                self.extension()
            self.eat(b")")
            return
        kind = self.string().upper()
        self.eat(b" ")
        kind = (kind, self.string().upper())
        self.eat(b" ")
        self.params()
        for field in (self.nstring, self.nstring, self.string, self.number):  # id, description, encoding, octets
            self.eat(b" ")
            field()
        if kind == (b"MESSAGE", b"RFC822"):
            self.eat(b" ")
            self.envelope()
            self.eat(b" ")
            self.body(extended)
        assert kind != (b"MESSAGE", b"GLOBAL"), "RFC 3501 has no such message"
        if kind[0] == b"TEXT" or kind == (b"MESSAGE", b"RFC822"):
            self.eat(b" ")
            self.number()
        if extended:
            self.eat(b" ")
            self.nstring()
            self.extension()
        self.eat(b")")


c = imaplib.IMAP4_SSL("localhost", dev["ports"]["imaps"], ssl_context=ssl.create_default_context(cafile=dev["ca_cert"]))
c.login(box["address"], box["password"])
count = int(c.select(os.environ["FOLDER"], readonly=True)[1][0])
for n in range(1, count + 1):
    status, answer = c.fetch(str(n), "(ENVELOPE BODY BODYSTRUCTURE PREVIEW)")
    assert status == "OK", answer
    line = b"".join(x if isinstance(x, bytes) else x[0] + b"\r\n" + x[1] for x in answer)
    w = Wire(line)
    try:
        w.eat(b"%d (" % n)
        items = []
        while True:
            name = w.data[w.at : w.data.index(b" ", w.at)]
            items.append(name)
            w.at += len(name) + 1
            if name == b"ENVELOPE":
                w.envelope()
            elif name == b"PREVIEW":
                preview = w.nstring()
                assert len((preview or b"").decode("utf-8")) <= 255
            else:
                w.body(name == b"BODYSTRUCTURE")
            if w.sees(b")"):
                break
            w.eat(b" ")
        assert w.at == len(line) and sorted(items) == [b"BODY", b"BODYSTRUCTURE", b"ENVELOPE", b"PREVIEW"], items
    except AssertionError as e:
        raise AssertionError("message %d: %s" % (n, e))
assert c.logout()[0] == "BYE"

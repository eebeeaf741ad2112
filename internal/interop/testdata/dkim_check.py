# SPDX-License-Identifier: Apache-2.0
# usage: dkim_check.py MESSAGE KEYS
# Judges each DKIM signature of a message with python3-dkim; KEYS is a JSON
# object with the TXT records by name.
import json
import sys

import dkim

message = open(sys.argv[1], "rb").read().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
keys = json.load(open(sys.argv[2]))


def txt(name, timeout=5):
    return keys[name.decode().rstrip(".") + "."].encode()


count = sum(1 for name, _ in dkim.rfc822_parse(message)[0] if name.lower() == b"dkim-signature")
for n in range(count):
    d = dkim.DKIM(message)
    passed = d.verify(idx=n, dnsfunc=txt)
    print(d.signature_fields[b"a"].decode(), "pass" if passed else "fail")

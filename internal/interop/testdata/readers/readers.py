# SPDX-License-Identifier: Apache-2.0
#
# Reads a JSON list of From values in base64 and prints, for each reader, whom it
# takes for the authors of each value.
import base64
import email
import email.header
import email.policy
import email.utils
import inspect
import json
import sys

strict = "strict" in inspect.signature(email.utils.getaddresses).parameters


def message(raw, policy):
    raw = b"From: " + raw + b"\r\nSubject: x\r\n\r\nx\r\n"
    try:
        return email.message_from_string(raw.decode("utf-8"), policy=policy)
    except UnicodeDecodeError:
        return email.message_from_bytes(raw, policy=policy)


def lenient(text):
    if strict:
        return [a for _, a in email.utils.getaddresses([text], strict=False)]
    return [a for _, a in email.utils.getaddresses([text])]


def compat(raw):
    return lenient(str(message(raw, email.policy.compat32)["From"]))


def checked(raw):
    return [a for _, a in email.utils.getaddresses([str(message(raw, email.policy.compat32)["From"])])]


def first(raw):
    return [email.utils.parseaddr(str(message(raw, email.policy.compat32)["From"]))[1]]


def registry(raw):
    return [a.addr_spec for a in message(raw, email.policy.default)["From"].addresses]


def decoded(raw):
    """Many scripts decode the field before they parse it."""
    value = str(message(raw, email.policy.compat32)["From"])
    return lenient(str(email.header.make_header(email.header.decode_header(value))))


readers = {"getaddresses": compat, "getaddresses strict": checked, "parseaddr": first, "policy.default": registry, "decode_header first": decoded}
values = [base64.b64decode(v) for v in json.load(sys.stdin)]
out = {}
for name, read in readers.items():
    out[name] = []
    for value in values:
        try:
            out[name].append([a for a in read(value) if a])
        except Exception:  # it shows nobody
            out[name].append([])
json.dump(out, sys.stdout)

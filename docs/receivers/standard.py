# SPDX-License-Identifier: Apache-2.0

# The same by Standard Webhooks, whose signature covers id and time as well.
import base64
import hashlib
import hmac
import time


def authentic(headers, body: bytes, secret: str) -> bool:
    """Tells whether the service signed these bytes within the last five minutes."""
    key = base64.b64decode(secret.removeprefix("whsec_"))  # what stands behind whsec_, decoded
    event, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(time.time() - int(sent)) > 300:
        return False
    digest = hmac.new(key, f"{event}.{sent}.".encode() + body, hashlib.sha256).digest()
    want = b"v1," + base64.b64encode(digest)
    # During a rotation there are two signatures, with a space in between.
    given = headers.get("webhook-signature", "").encode().split()
    return any([hmac.compare_digest(want, one) for one in given])

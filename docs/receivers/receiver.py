# SPDX-License-Identifier: Apache-2.0

# A receiver of webhooks: WEBHOOK_SECRET=whsec_… python3 receiver.py
import hashlib
import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["WEBHOOK_SECRET"]
if not SECRET:
    raise SystemExit("set WEBHOOK_SECRET")


def authentic(body: bytes, signature: str) -> bool:
    """Tells whether the service signed these bytes."""
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()  # the whole secret, whsec_ included
    return hmac.compare_digest(f"sha256={digest}".encode(), signature.encode())  # in constant time


def handle(event: dict) -> None:
    """Is yours. An event may come twice: remember the ids that you handled."""
    print(event["type"], event["id"], flush=True)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        if self.path != "/hook" or not 0 < size <= 4 << 20:
            return self.answer(404)
        body = self.rfile.read(size)  # as it came, before any parsing
        if not authentic(body, self.headers.get("X-Service-Signature", "")):
            return self.answer(401)
        try:
            handle(json.loads(body))
        except Exception as error:
            self.log_error("%s", error)
            return self.answer(500)  # it comes again
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Receiver).serve_forever()

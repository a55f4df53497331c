#!/usr/bin/env python3
"""Sends the operational events of Posthorn as mail. Needs Python 3.9 and nothing else.

    WEBHOOK_SECRET=whsec_… MAIL_TO=ops@example.com ./relay.py

Posthorn posts to it; it checks the signature, hands a mail to an SMTP server, and answers 204 only when the server has
taken it. Until then Posthorn tries again, so no mail is lost; one may come twice, with the same Message-ID.
"""

import base64
import hashlib
import hmac
import json
import os
import smtplib
import time
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LISTEN = os.environ.get("LISTEN", "127.0.0.1:8025")
SMTP = os.environ.get("SMTP", "127.0.0.1:25")
MAIL_FROM = os.environ.get("MAIL_FROM", "posthorn@localhost")
MAIL_TO = os.environ["MAIL_TO"]
SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
BODY_MAX = 1 << 20
TOLERANCE = 300


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def is_signed(headers, body):
    """Whether Posthorn sent this, and not long ago (Standard Webhooks)."""
    id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > TOLERANCE:
        return False
    digest = hmac.new(SECRET, f"{id}.{sent}.".encode() + body, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(digest).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(wanted, one) for one in given)


def mail(id, told):
    message = EmailMessage()
    about = told.get("subscription_name") or told.get("subscription") or told.get("job") or told.get("node") or ""
    message["Subject"] = f"Posthorn: {told['type']} {about}".strip()
    message["From"], message["To"] = MAIL_FROM, MAIL_TO
    message["Message-ID"] = f"<{id}@posthorn>"
    message.set_content("\n".join(f"{name}: {value}" for name, value in told.items() if value is not None))
    return message


class Relay(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(min(length, BODY_MAX))
        if not is_signed(self.headers, body):
            return self.answer(401)
        try:
            with smtplib.SMTP(*address(SMTP), timeout=10) as server:
                server.send_message(mail(self.headers["webhook-id"], json.loads(body)))
        except (OSError, smtplib.SMTPException) as problem:
            self.log_error("no mail: %s", problem)
            return self.answer(503)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


if __name__ == "__main__":
    server = ThreadingHTTPServer(address(LISTEN), Relay)
    print(f"listening on http://{server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()

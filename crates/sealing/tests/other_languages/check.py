"""Answers questions about signatures with libraries that Posthorn did not write.

One JSON object a line on stdin, one answer a line on stdout, in order. A question that cannot be
answered is answered with its error, so that the test says which.
"""

import base64
import hashlib
import hmac
import json
import sys
from datetime import datetime, timezone

import http_ece
import jwt
import pyotp
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid01, Vapid02
from pywebpush import webpush
from standardwebhooks import Webhook, WebhookVerificationError


def unpack(text):
    return base64.b64decode(text, validate=True)


def pack(data):
    return base64.b64encode(data).decode()


def accepts(webhook, body, headers):
    try:
        webhook.verify(body, headers, json_parse=False)
        return True
    except WebhookVerificationError:
        return False


def standard_webhooks(q):
    webhook = Webhook(q["secret"])
    body = unpack(q["body"])
    headers = {
        "webhook-id": q["id"],
        "webhook-timestamp": str(q["timestamp"]),
        "webhook-signature": q["signature"],
    }
    other = {**headers, "webhook-id": q["id"] + "x"}
    at = datetime.fromtimestamp(q["timestamp"], tz=timezone.utc)
    return {
        "accepted": accepts(webhook, body, headers),
        "accepted_changed": accepts(webhook, body + b"x", headers) or accepts(webhook, body, other),
        "signature": webhook.sign(q["id"], at, body.decode()),
    }


def ed25519(q):
    key = Ed25519PublicKey.from_public_bytes(unpack(q["public"]))
    content = unpack(q["content"])

    def fits(data):
        try:
            key.verify(unpack(q["signature"]), data)
            return True
        except InvalidSignature:
            return False

    theirs = Ed25519PrivateKey.from_private_bytes(unpack(q["seed"]))
    public = theirs.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {
        "accepted": fits(content),
        "accepted_changed": fits(content + b"x"),
        "public": pack(public),
        "signature": pack(theirs.sign(content)),
    }


def hmac_hex(q):
    digest = hmac.new(unpack(q["key"]), unpack(q["content"]), q["hash"]).hexdigest()
    return {"hex": digest}


def zgw_jwt(q):
    secret = unpack(q["secret"])
    options = {"require": ["iss", "iat", "exp"], "verify_sub": False}
    claims = jwt.decode(
        q["token"], secret, algorithms=["HS256"], options=options, leeway=q["leeway"]
    )
    try:
        jwt.decode(q["token"], secret + b"x", algorithms=["HS256"])
        accepted_other = True
    except jwt.InvalidSignatureError:
        accepted_other = False
    return {
        "claims": claims,
        "header": jwt.get_unverified_header(q["token"]),
        "accepted_other": accepted_other,
        "token": jwt.encode(claims, secret, algorithm="HS256"),
        "token_hs512": jwt.encode(claims, secret, algorithm="HS512"),
        "token_none": jwt.encode(claims, None, algorithm="none"),
    }


def totp(q):
    digest = {"sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha512": hashlib.sha512}[q["hash"]]
    secret = base64.b32encode(unpack(q["secret"])).decode()
    code = pyotp.TOTP(secret, digits=q["digits"], digest=digest, interval=q["step"])
    return {"code": code.at(q["at"])}


class Recorder:
    """Stands where a session of HTTP requests would: keeps what would be sent."""

    status_code = 201
    reason = text = ""
    headers = {}

    def post(self, url, data=None, headers=None, timeout=None):
        self.body, self.sent = data, headers
        return self


def push(q):
    """What the library would send, with its own keys for the encryption and ours for the sender."""
    sender = {"rfc8292": Vapid02, "draft01": Vapid01}[q["form"]].from_string(q["sender"])
    session = Recorder()
    webpush(
        {"endpoint": q["endpoint"], "keys": {"p256dh": q["p256dh"], "auth": q["auth"]}},
        data=unpack(q["text"]),
        vapid_private_key=sender,
        vapid_claims={"sub": q["subject"]},
        content_encoding=q["encoding"],
        ttl=q["ttl"],
        headers={"Topic": q["topic"]},
        requests_session=session,
    )
    return {"headers": {k.lower(): v for k, v in session.sent.items()}, "body": pack(session.body)}


def private_key(text):
    number = int.from_bytes(unpack(text), "big")
    return ec.derive_private_key(number, ec.SECP256R1())


def ece_open(q):
    headers = {}
    if q["encoding"] == "aesgcm":
        headers = {"salt": unpack(q["salt"]), "dh": unpack(q["dh"]), "rs": q["rs"]}

    def opened(body):
        return http_ece.decrypt(
            body,
            private_key=private_key(q["private"]),
            auth_secret=unpack(q["auth"]),
            version=q["encoding"],
            **headers,
        )

    body = unpack(q["body"])
    try:
        opened(body[:-1] + bytes([body[-1] ^ 1]))
        accepted_changed = True
    except http_ece.ECEException:
        accepted_changed = False
    return {"text": pack(opened(body)), "accepted_changed": accepted_changed}


def ece_seal(q):
    """In records of any size, as the coding allows."""
    sender = ec.generate_private_key(ec.SECP256R1())
    body = http_ece.encrypt(
        unpack(q["text"]),
        salt=unpack(q["salt"]),
        private_key=sender,
        dh=unpack(q["p256dh"]),
        auth_secret=unpack(q["auth"]),
        rs=q["rs"],
        version=q["encoding"],
    )
    point = sender.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return {"body": pack(body), "dh": pack(point)}


def vapid(q):
    """Verifies a header of ours twice: as a sender's library does, and as a token of ES256."""
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unpack(q["key"]))
    if q["form"] == "rfc8292":
        fits = Vapid02.verify(q["authorization"])
    else:
        fits = Vapid01.verify(q["key_text"], q["authorization"])
    token = q["token"]
    claims = jwt.decode(token, point, algorithms=["ES256"], audience=q["audience"])
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    try:
        jwt.decode(token, other, algorithms=["ES256"], audience=q["audience"])
        accepted_other = True
    except jwt.InvalidSignatureError:
        accepted_other = False
    return {
        "accepted": fits,
        "accepted_other": accepted_other,
        "claims": claims,
        "header": jwt.get_unverified_header(token),
    }


OPERATIONS = {
    "standard_webhooks": standard_webhooks,
    "ed25519": ed25519,
    "hmac": hmac_hex,
    "zgw_jwt": zgw_jwt,
    "totp": totp,
    "push": push,
    "ece_open": ece_open,
    "ece_seal": ece_seal,
    "vapid": vapid,
}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = OPERATIONS[question["ask"]](question)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test must name it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=False)

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

import jwt
import pyotp
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
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


OPERATIONS = {
    "standard_webhooks": standard_webhooks,
    "ed25519": ed25519,
    "hmac": hmac_hex,
    "zgw_jwt": zgw_jwt,
    "totp": totp,
}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = OPERATIONS[question["ask"]](question)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test must name it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=False)

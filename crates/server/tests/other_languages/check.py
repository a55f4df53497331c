"""Application servers and an agent of Web Push, made of libraries that Posthorn did not write.

One JSON object a line on stdin, one answer a line on stdout, in order. A question that cannot be
answered is answered with its error, so that the test says which.
"""

import base64
import json
import os
import sys
import time
import uuid

import http_ece
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid01, Vapid02
from pywebpush import WebPushException, webpush
from websockets.sync.client import connect

PATIENCE = 30


def unpack(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def pack(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def post(endpoint, keys, text, sender, encoding="aes128gcm", ttl=60, topic=None):
    """Sends it; status and headers of the answer."""
    try:
        answer = webpush(
            {"endpoint": endpoint, "keys": keys},
            data=text,
            vapid_private_key=sender,
            vapid_claims={"sub": "mailto:admin@example.com"},
            content_encoding=encoding,
            ttl=ttl,
            headers={"Topic": topic} if topic else {},
            timeout=PATIENCE,
        )
    except WebPushException as refused:
        answer = refused.response
    return {"status": answer.status_code, "headers": {k.lower(): v for k, v in answer.headers.items()}}


def send(q):
    sender = {"rfc8292": Vapid02, "draft01": Vapid01}[q["form"]].from_string(q["sender"])
    keys = {"p256dh": q["p256dh"], "auth": q["auth"]}
    return post(q["endpoint"], keys, unpack(q["text"]), sender, q["encoding"], q["ttl"], q["topic"])


class Agent:
    """What a browser does, with a socket and keys of its own."""

    def __init__(self, url, uaid=None):
        # The library offers compression by itself.
        self.socket = connect(
            url, origin=url, subprotocols=["push-notification"], open_timeout=PATIENCE
        )
        hello = {"messageType": "hello", "use_webpush": True, "broadcasts": {}}
        if uaid:
            hello["uaid"] = uaid
        self.uaid = self.ask(hello)["uaid"]

    def say(self, message):
        self.socket.send(json.dumps(message))

    def hear(self):
        return json.loads(self.socket.recv(timeout=PATIENCE))

    def ask(self, message):
        self.say(message)
        answer = self.hear()
        assert answer["messageType"] == message["messageType"], answer
        assert answer["status"] == 200, answer
        return answer

    def ack(self, notification):
        update = {k: notification[k] for k in ("channelID", "version")} | {"code": 100}
        self.say({"messageType": "ack", "updates": [update]})


def agent(q):
    """The life of a subscription, from its beginning to its end."""
    private = ec.generate_private_key(ec.SECP256R1())
    point = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = os.urandom(16)
    keys = {"p256dh": pack(point), "auth": pack(secret)}
    sender = Vapid02()
    sender.generate_keys()
    sender_key = sender.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def opened(notification):
        return http_ece.decrypt(
            unpack(notification["data"]),
            private_key=private,
            auth_secret=secret,
            version=notification["headers"]["encoding"],
        ).decode()

    browser = Agent(q["url"])
    channel = str(uuid.uuid4())
    register = {"messageType": "register", "channelID": channel, "key": pack(sender_key)}
    endpoint = browser.ask(register)["pushEndpoint"]
    texts, statuses = [], []
    for n in range(q["straight"]):
        statuses.append(post(endpoint, keys, f"straight {n}", sender)["status"])
        notification = browser.hear()
        assert notification["channelID"] == channel, notification
        texts.append(opened(notification))
        browser.ack(notification)
    browser.socket.close()
    for n in range(q["away"]):
        statuses.append(post(endpoint, keys, f"while away {n}", sender)["status"])
    browser, before = Agent(q["url"], browser.uaid), browser.uaid
    assert browser.uaid == before
    for _ in range(q["away"]):
        notification = browser.hear()
        texts.append(opened(notification))
        browser.ack(notification)
    browser.say({})
    assert browser.hear() == {}
    # Whoever has another key may not post to it.
    stranger = Vapid02()
    stranger.generate_keys()
    refused = post(endpoint, keys, "spam", stranger)["status"]
    browser.ask({"messageType": "unregister", "channelID": channel, "code": 200})
    gone = post(endpoint, keys, "too late", sender)["status"]
    browser.socket.close()
    return {"texts": texts, "statuses": statuses, "refused": refused, "gone": gone}


def openapi(q):
    """Another module: only this question needs what it imports."""
    import openapi_client

    return openapi_client.make(q)


def cloudevent(q):
    """A CloudEvent in both modes, and what it reads of messages that somebody else sent."""
    from datetime import datetime

    from cloudevents.core.bindings import http
    from cloudevents.core.v1.event import CloudEvent

    def shown(event):
        attributes = dict(event.get_attributes())
        attributes["time"] = attributes["time"].isoformat()
        return {"attributes": attributes, "data": event.get_data()}

    def message(written):
        return {"headers": written.headers, "body": written.body.decode()}

    attributes = {**q["attributes"], "time": datetime.fromisoformat(q["attributes"]["time"])}
    event = CloudEvent(attributes=attributes, data=q["data"])
    received = [http.HTTPMessage(m["headers"], m["body"].encode()) for m in q["received"]]
    return {
        "own": shown(event),
        "structured": message(http.to_structured_event(event)),
        "binary": message(http.to_binary_event(event)),
        "read": [shown(http.from_http_event(m)) for m in received],
    }


def receive(q):
    """What a push service and a browser make of a request of ours."""
    token, key = q["authorization"].removeprefix("vapid t=").split(",k=")
    assert key == q["key"], "signed with another key than the tenant's"
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unpack(key))
    claims = jwt.decode(token, point, algorithms=["ES256"], audience=q["audience"])
    number = int.from_bytes(unpack(q["private"]), "big")
    text = http_ece.decrypt(
        unpack(q["body"]),
        private_key=ec.derive_private_key(number, ec.SECP256R1()),
        auth_secret=unpack(q["auth"]),
        version="aes128gcm",
    )
    return {
        "accepted": Vapid02.verify(q["authorization"]),
        "claims": claims,
        "seconds_left": int(claims["exp"] - time.time()),
        "text": text.decode(),
    }


OPERATIONS = {
    "send": send,
    "agent": agent,
    "openapi": openapi,
    "cloudevent": cloudevent,
    "receive": receive,
}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = OPERATIONS[question["ask"]](question)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test must name it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)

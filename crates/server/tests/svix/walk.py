"""Walks all operations with the published client, against the real program.

Started by the tests with the address of the server, a key, and the address of a receiver. Whatever the client does not expect is an
exception of its own, and ends the walk.
"""

import json
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import svix
from svix.api import Svix, SvixOptions
from svix.exceptions import HttpError, HTTPValidationError
from svix.webhooks import Webhook, WebhookVerificationError
from svix import models

SERVER, KEY = sys.argv[1], sys.argv[2]
NEW = not svix.__version__.startswith("1.") if hasattr(svix, "__version__") else True
try:
    from importlib.metadata import version

    NEW = not version("svix").startswith("1.")
except Exception:
    pass


class Received(list):
    """What receivers got, by path."""

    def of(self, path):
        return [one for one in self if one[0] == path]


RECEIVED = Received()
FAILING = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        RECEIVED.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(500 if self.path in FAILING else 200)
        self.end_headers()
        self.wfile.write(b"heard")

    def log_message(self, *_):
        pass


receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
HERE = f"http://127.0.0.1:{receiver.server_port}"


def until(what, check, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def refused(status, act, kind=(HttpError, HTTPValidationError)):
    try:
        act()
    except kind as error:
        assert error.status_code == status, (error.status_code, status, error)
        return error
    raise AssertionError(f"{status} was expected")


DONE = []


def step(name):
    DONE.append(name)
    print(name, flush=True)


def put(api):
    """What replaces a thing as a whole: it was given another name."""
    return getattr(api, "upsert", None) or api.update


def model(kind_name, /, **fields):
    """A body by the names that this version of the client has."""
    kind = getattr(models, kind_name, None) or getattr(models, kind_name.replace("Upsert", ""))
    known = kind.model_fields if hasattr(kind, "model_fields") else kind.__fields__
    if "event_types" not in known and "event_types" in fields and "filter_types" in known:
        fields["filter_types"] = fields.pop("event_types")
    if "throttle_rate" not in known and "throttle_rate" in fields:
        fields["rate_limit"] = fields.pop("throttle_rate")
    return kind(**fields)


client = Svix(KEY, SvixOptions(server_url=SERVER))


# --- health, event types ---------------------------------------------------------------------------
client.health.get()
step("health")

for name in ["invoice.paid", "invoice.due", "user.created"]:
    schema = {"1": {"type": "object", "examples": [{"id": 7}]}}
    made = client.event_type.create(
        models.EventTypeIn(name=name, description=f"about {name}", schemas=schema)
    )
    assert made.name == name
refused(
    409,
    lambda: client.event_type.create(models.EventTypeIn(name="user.created", description="again")),
)
assert {one.name for one in client.event_type.list().data} >= {"invoice.paid", "user.created"}
assert client.event_type.get("invoice.paid").schemas["1"]["type"] == "object"
kind = getattr(models, "EventTypeUpsertIn", None) or models.EventTypeUpdate
put(client.event_type)("invoice.due", kind(description="other"))
patched = client.event_type.patch("invoice.due", models.EventTypePatch(deprecated=True))
assert patched.description == "other" and patched.deprecated
client.event_type.delete("user.created")
assert "user.created" not in {one.name for one in client.event_type.list().data}
client.event_type.create(models.EventTypeIn(name="user.created", description="is back"))
assert client.event_type.get("user.created").description == "is back"
step("event types")

# --- applications ----------------------------------------------------------------------------------
app = client.application.create(
    model("ApplicationIn", name="ACME (test)", uid="acme", throttle_rate=500, metadata={"tier": "gold"})
)
assert app.id.startswith("app_") and len(app.id) == 31 and app.uid == "acme"
assert app.metadata == {"tier": "gold"}
assert client.application.get("acme").id == app.id
assert client.application.get_or_create(model("ApplicationIn", name="x", uid="acme")).id == app.id
error = refused(409, lambda: client.application.create(model("ApplicationIn", name="y", uid="acme")))
assert error.code == "conflict", error
refused(422, lambda: client.application.create(model("ApplicationIn", name="")))
changed = client.application.patch("acme", model("ApplicationPatch", name="ACME Corp."))
assert changed.name == "ACME Corp." and changed.metadata == {"tier": "gold"}
put(client.application)("acme", model("ApplicationUpsertIn", name="ACME", uid="acme"))
assert client.application.get(app.id).metadata == {}
other = client.application.create(model("ApplicationIn", name="another", uid="other"))
gone = client.application.create(model("ApplicationIn", name="gone"))
client.application.delete(gone.id)
refused(404, lambda: client.application.get(gone.id))
listed = [one.id for one in client.application.list().data]
assert app.id in listed and other.id in listed and gone.id not in listed
step("applications")

# --- endpoints ---------------------------------------------------------------------------------------
endpoint = client.endpoint.create(
    app.id,
    model(
        "EndpointIn",
        url=f"{HERE}/all",
        uid="all",
        description="everything",
        metadata={"a": "b"},
        throttle_rate=1000,
    ),
)
assert endpoint.id.startswith("ep_") and endpoint.url == f"{HERE}/all" and not endpoint.disabled
some = client.endpoint.create(
    app.id, model("EndpointIn", url=f"{HERE}/some", event_types=["invoice.paid"], channels=["eu", "us"])
)
error = refused(
    422, lambda: client.endpoint.create(app.id, model("EndpointIn", url=HERE, event_types=["nope"]))
)
refused(409, lambda: client.endpoint.create(app.id, model("EndpointIn", url=HERE, uid="all")))
refused(422, lambda: client.endpoint.create(app.id, model("EndpointIn", url="ftp://x")))
assert client.endpoint.get("acme", "all").id == endpoint.id
changed = client.endpoint.patch(app.id, "all", model("EndpointPatch", description="all of it"))
assert changed.description == "all of it" and changed.metadata == {"a": "b"}
update = getattr(models, "EndpointUpsertIn", None) or models.EndpointUpdate
put(client.endpoint)(app.id, some.id, update(url=f"{HERE}/some", channels=["eu"]))
secret = client.endpoint.get_secret(app.id, "all").key
assert secret.startswith("whsec_")
set_headers = getattr(client.endpoint, "set_headers", None) or client.endpoint.update_headers
set_headers(
    app.id, "all", models.EndpointHeadersIn(headers={"X-Team": "blue", "Authorization": "hush"})
)
headers = client.endpoint.get_headers(app.id, "all")
assert headers.headers == {"X-Team": "blue"} and headers.sensitive == ["Authorization"], headers
client.endpoint.patch_headers(app.id, "all", models.EndpointHeadersPatchIn(headers={"X-Two": "2"}))
assert set(client.endpoint.get_headers(app.id, "all").headers) == {"X-Team", "X-Two"}
assert {one.id for one in client.endpoint.list(app.id).data} == {endpoint.id, some.id}
step("endpoints")

# --- messages ----------------------------------------------------------------------------------------
message = client.message.create(
    app.id,
    models.MessageIn(event_type="invoice.paid", event_id="own-1", payload={"id": 1}, channels=["eu"]),
)
assert message.id.startswith("msg_") and message.event_id == "own-1"
[(_, headers, body)] = until("a message at both", lambda: RECEIVED.of("/some"))
[(_, headers, body)] = until("the message", lambda: RECEIVED.of("/all"))
assert headers["svix-id"] == message.id, (headers, message.id)
assert headers["x-team"] == "blue" and headers["authorization"] == "hush"
Webhook(secret).verify(body, headers)
assert json.loads(body) == {"id": 1}
try:
    Webhook(secret).verify(body + b" ", headers)
    raise AssertionError("another body is not what was signed")
except WebhookVerificationError:
    pass
error = refused(
    409,
    lambda: client.message.create(
        app.id, models.MessageIn(event_type="invoice.paid", event_id="own-1", payload={})
    ),
)
assert client.message.get(app.id, "own-1").id == message.id
silent = client.message.create(app.id, models.MessageIn(event_type="user.created", payload={"id": 2}))
until("the second", lambda: len(RECEIVED.of("/all")) == 2)
assert len(RECEIVED.of("/some")) == 1, "it wants another channel"
found = client.message.list(app.id)
assert [one.id for one in found.data] == [silent.id, message.id] and found.done
step("messages")

# --- attempts ----------------------------------------------------------------------------------------
attempts = until(
    "two attempts", lambda: len(client.message_attempt.list_by_endpoint(app.id, "all").data) == 2
    and client.message_attempt.list_by_endpoint(app.id, "all").data
)
assert [one.msg_id for one in attempts] == [silent.id, message.id]
one = client.message_attempt.get(app.id, message.id, attempts[1].id)
assert one.response_status_code == 200 and one.response == "heard" and int(one.status) == 0
by_msg = client.message_attempt.list_by_msg(app.id, message.id).data
assert {one.endpoint_id for one in by_msg} == {endpoint.id, some.id}
assert [m.id for m in client.message_attempt.list_attempted_messages(app.id, "all").data][0] == silent.id
places = client.message_attempt.list_attempted_destinations(app.id, message.id).data
assert {one.id for one in places} == {endpoint.id, some.id} and all(int(p.status) == 0 for p in places)
client.message_attempt.expunge_content(app.id, message.id, attempts[1].id)
assert client.message_attempt.get(app.id, message.id, attempts[1].id).response == "EXPUNGED"
step("attempts")

# --- failing, resending, recovering --------------------------------------------------------------
FAILING.add("/all")
since = datetime.now(timezone.utc) - timedelta(minutes=1)
failing = client.message.create(app.id, models.MessageIn(event_type="user.created", payload={"id": 3}))
until(
    "a failed attempt",
    lambda: any(int(a.status) == 2 for a in client.message_attempt.list_by_msg(app.id, failing.id).data),
)
[place] = client.message_attempt.list_attempted_destinations(app.id, failing.id).data
assert place.next_attempt is not None
FAILING.clear()
client.message_attempt.resend(app.id, failing.id, endpoint.id)
until(
    "it to arrive",
    lambda: any(int(a.status) == 0 for a in client.message_attempt.list_by_msg(app.id, failing.id).data),
)
client.message_attempt.resend(app.id, message.id, endpoint.id)
until("a message that arrived, again", lambda: len([1 for r in RECEIVED.of("/all") if r[1]["svix-id"] == message.id]) == 2)
until(
    "its attempt, made by hand",
    lambda: any(int(a.trigger_type) == 1 for a in client.message_attempt.list_by_msg(app.id, message.id).data),
)
task = client.endpoint.recover(app.id, "all", models.RecoverIn(since=since))
assert task.id.startswith("qtask_")
until("the task to end", lambda: client.background_task.get(task.id).status == "finished")
client.endpoint.replay_missing(app.id, some.id, models.ReplayIn(since=since))
assert task.id in {one.id for one in client.background_task.list().data}
# Figures are written with later outcomes, or after a while.
def counted():
    stats = client.endpoint.get_stats(app.id, "all")
    return stats.success >= 3 and stats.fail >= 1


until("its figures", counted)
step("failing, resending, recovering")

example = client.endpoint.send_example(
    app.id, some.id, models.EventExampleIn(event_type="invoice.paid")
)
until("the example", lambda: any(r[2] == b'{"id":7}' for r in RECEIVED.of("/some")))
step("examples")

# --- secrets -----------------------------------------------------------------------------------------
rotate = models.EndpointSecretRotateIn()
client.endpoint.rotate_secret(app.id, "all", rotate)
newer = client.endpoint.get_secret(app.id, "all").key
assert newer != secret
signed = client.message.create(app.id, models.MessageIn(event_type="user.created", payload={"id": 4}))
got = until("it", lambda: [r for r in RECEIVED.of("/all") if r[1]["svix-id"] == signed.id])
both = got[0][1]
Webhook(secret).verify(got[0][2], both)
Webhook(newer).verify(got[0][2], both)
step("rotation")

# --- contents ----------------------------------------------------------------------------------------
until(
    "it to be written down",
    lambda: all(int(p.status) == 0 for p in client.message_attempt.list_attempted_destinations(app.id, signed.id).data),
)
client.message.expunge_content(app.id, signed.id)
client_raw = client.message.get(app.id, signed.id, svix.api.MessageGetOptions(with_content=True))
assert client_raw.payload == {"expired": True}
refused(400, lambda: client.message_attempt.resend(app.id, signed.id, endpoint.id))
step("contents")

# --- pages -------------------------------------------------------------------------------------------
crowd = client.application.create(model("ApplicationIn", name="crowd"))
for number in range(600):
    client.message.create(crowd.id, models.MessageIn(event_type="user.created", payload={"n": number}))
forward, iterator = [], None
while True:
    page = client.message.list(crowd.id, svix.api.MessageListOptions(limit=250, iterator=iterator))
    forward.append([one.id for one in page.data])
    if page.done:
        break
    iterator = page.iterator
assert [len(part) for part in forward] == [250, 250, 100], [len(part) for part in forward]
assert len({one for part in forward for one in part}) == 600
back = client.message.list(
    crowd.id, svix.api.MessageListOptions(limit=250, iterator=page.prev_iterator)
)
assert [one.id for one in back.data] == forward[1]
for number in range(12):
    client.endpoint.create(crowd.id, model("EndpointIn", url=f"{HERE}/{number}"))
first = client.endpoint.list(crowd.id, svix.api.EndpointListOptions(limit=5))
second = client.endpoint.list(crowd.id, svix.api.EndpointListOptions(limit=5, iterator=first.iterator))
again = client.endpoint.list(crowd.id, svix.api.EndpointListOptions(limit=5, iterator=second.prev_iterator))
assert [one.id for one in again.data] == [one.id for one in first.data]
step("pages")

# --- idempotency -------------------------------------------------------------------------------------
made = [
    client.endpoint.create(
        other.id,
        model("EndpointIn", url=f"{HERE}/once"),
        svix.api.EndpointCreateOptions(idempotency_key="once"),
    ).id
    for _ in range(3)
]
assert len(set(made)) == 1 and len(client.endpoint.list(other.id).data) == 1
sent = [
    client.message.create(
        other.id,
        models.MessageIn(event_type="user.created", payload={"n": number}),
        svix.api.MessageCreateOptions(idempotency_key="sent once"),
    ).id
    for number in range(3)
]
assert len(set(sent)) == 1
step("idempotency")

# --- destinations and pollers, which former clients do not know ---------------------------------------
if hasattr(client, "destination"):
    queue = client.application.create(model("ApplicationIn", name="queue", uid="queue"))
    made = client.destination.create(
        "queue", models.DestinationIn(uid="fifo", type="fifoEndpoint", config={"url": HERE + "/fifo"})
    )
    assert made.id.startswith("sink_") and made.config.url == HERE + "/fifo", made
    assert made.batch_size == 1 and str(made.status) == "enabled"
    polled = client.destination.create(
        "queue", models.DestinationIn(uid="polled", type="pollingEndpoint", config={})
    )
    sent = [
        client.message.create("queue", models.MessageIn(event_type="user.created", payload={"n": n})).id
        for n in range(5)
    ]
    until("the queue", lambda: len(RECEIVED.of("/fifo")) == 5)
    assert [r[1]["svix-id"] for r in RECEIVED.of("/fifo")] == sent
    assert client.destination.get("queue", made.id).uid == "fifo"
    listed = client.destination.list("queue", svix.api.DestinationListOptions(limit=10))
    assert {one.uid for one in listed.data} == {"fifo", "polled"} and listed.done
    patched = client.destination.patch(
        "queue", "fifo", models.DestinationPatch(type="fifoEndpoint", config={}, metadata={"a": "b"})
    )
    assert patched.metadata == {"a": "b"} and patched.config.url == HERE + "/fifo"
    put_one = client.destination.upsert(
        "queue", "fifo", models.DestinationIn(uid="fifo", type="fifoEndpoint", config={"url": HERE + "/other"})
    )
    assert put_one.id == made.id and put_one.metadata == {} and put_one.config.url == HERE + "/other"
    assert client.destination.rotate_secret("queue", "fifo", models.EndpointSecretRotateIn()).key
    refused(422, lambda: client.destination.create(
        "queue", models.DestinationIn(type="fifoEndpoint", config={"url": HERE + "/x"}, batch_size=10)
    ))
    refused(501, lambda: client.destination.create(
        "queue", models.DestinationIn(type="sns", config={"topic_arn": "x"})
    ))
    refused(501, lambda: client.destination.transformation.get("queue", "fifo"))

    poller = client.message.poller
    first = poller.poll("queue", polled.id, svix.api.MessagePollerPollOptions(limit=3))
    assert [one.id for one in first.data] == sent[:3] and first.data[0].payload == {"n": 0}
    rest = poller.poll(
        "queue", "polled", svix.api.MessagePollerPollOptions(limit=3, iterator=first.iterator)
    )
    assert [one.id for one in rest.data] == sent[3:] and rest.done
    options = svix.api.MessagePollerConsumerPollOptions
    page = poller.consumer_poll("queue", "polled", "worker", options(limit=2))
    assert [one.id for one in page.data] == sent[:2]
    poller.consumer_poll("queue", "polled", "worker", options(limit=2, iterator=page.iterator))
    page = poller.consumer_poll("queue", "polled", "worker", options(limit=9))
    assert [one.id for one in page.data] == sent[2:]
    before = datetime.now(timezone.utc) - timedelta(hours=1)
    sought = poller.consumer_seek(
        "queue", "polled", "worker", models.PollingEndpointConsumerSeekIn(after=before)
    )
    assert sought.iterator
    assert [one.id for one in poller.consumer_poll("queue", "polled", "worker").data] == sent
    client.destination.delete("queue", "fifo")
    refused(404, lambda: client.destination.get("queue", "fifo"))
    client.application.delete("queue")
    step("destinations and pollers")

# --- the portal, and tokens of an application ------------------------------------------------------
access = client.authentication.app_portal_access(app.id, models.AppPortalAccessIn())
assert access.url.startswith("http") and "#" in access.url
own = Svix(access.token, SvixOptions(server_url=SERVER))
assert own.endpoint.get(app.id, "all").id == endpoint.id
assert own.application.get("acme").id == app.id
refused(404, lambda: own.application.get(other.id))
refused(404, lambda: own.endpoint.list("other"))
error = refused(403, lambda: own.application.list())
assert error.code == "insufficient access", error
refused(403, lambda: own.message.create(app.id, models.MessageIn(event_type="a", payload={})))
read_only = client.authentication.app_portal_access(app.id, models.AppPortalAccessIn(read_only=True))
looking = Svix(read_only.token, SvixOptions(server_url=SERVER))
assert looking.endpoint.list(app.id).data
refused(403, lambda: looking.endpoint.delete(app.id, "all"))
own.authentication.logout()
refused(401, lambda: own.endpoint.list(app.id))
step("portal")

# --- operational webhooks --------------------------------------------------------------------------
ops = client.operational_webhook.endpoint
told = ops.create(
    model("OperationalWebhookEndpointIn", url=f"{HERE}/ops", uid="ops", event_types=["endpoint.created"])
)
assert ops.get("ops").id == told.id and ops.list().data[0].id == told.id
fresh = client.endpoint.create(app.id, model("EndpointIn", url=f"{HERE}/fresh", uid="fresh"))
path, headers, body = until("word of an endpoint", lambda: RECEIVED.of("/ops"))[0]
Webhook(ops.get_secret(told.id).key).verify(body, headers)
said = json.loads(body)
assert said["type"] == "endpoint.created" and said["data"]["endpointId"] == fresh.id, said
assert said["data"]["appUid"] == "acme", said
kind = "OperationalWebhookEndpointUpsertIn" if NEW else "OperationalWebhookEndpointUpdate"
changed = put(ops)(told.id, model(kind, url=f"{HERE}/ops2", uid="ops", disabled=True))
assert changed.disabled and changed.url.endswith("/ops2")
before = ops.get_secret(told.id).key
ops.rotate_secret(told.id, models.OperationalWebhookEndpointSecretIn())
assert ops.get_secret(told.id).key != before
set_headers = getattr(ops, "set_headers", None) or ops.update_headers
set_headers(told.id, models.OperationalWebhookEndpointHeadersIn(headers={"x-team": "ops"}))
assert ops.get_headers(told.id).headers == {"x-team": "ops"}
ops.delete(told.id)
refused(404, lambda: ops.get(told.id))
client.endpoint.delete(app.id, "fresh")
step("operational webhooks")

# --- errors are the client's own ---------------------------------------------------------------------
nobody = Svix("ph_wrong", SvixOptions(server_url=SERVER))
error = refused(401, lambda: nobody.application.list())
assert error.code == "authentication_failed", error
refused(404, lambda: client.message.get(app.id, "msg_nope"))
refused(404, lambda: client.endpoint.get(app.id, "ep_nope"))
refused(422, lambda: client.application.list(svix.api.ApplicationListOptions(limit=999)))
refused(501, lambda: client.integration.list(app.id))
client.endpoint.delete(app.id, some.id)
refused(404, lambda: client.endpoint.get(app.id, some.id))
assert any(one.endpoint_id == some.id for one in client.message_attempt.list_by_msg(app.id, message.id).data)
step("errors")
print(json.dumps({"steps": len(DONE)}))

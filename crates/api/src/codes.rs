//! Every error code of the API: the one place where code, status and explanation are written.
//!
//! Codes are stable. `posthorn explain CODE`, `docs/reference/errors.md` and the OpenAPI document
//! are made from this list.

/// One error code, with what it means and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// Stable, `snake_case`.
    pub code: &'static str,
    /// The HTTP status it comes with.
    pub status: u16,
    /// A few words for people.
    pub title: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// All error codes, by status.
pub fn error_codes() -> &'static [ErrorCode] {
    &ALL
}

/// The reference page of all codes, as `docs/reference/errors.md` keeps it.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Error codes\n\n<!-- Generated from crates/api/src/codes.rs; UPDATE_GOLDEN=1 cargo test \
         -p posthorn-api rewrites it. -->\n\nEvery error of the native API is a problem document \
         with one of these codes. A code never changes\nits meaning. `posthorn explain CODE` shows \
         the same text.\n",
    );
    for code in error_codes() {
        let ErrorCode { code, status, title, meaning, remedy } = code;
        page.push_str(&format!(
            "\n## `{code}`\n\n**{status} {title}.** {meaning}\n\n*What to do:* {remedy}\n"
        ));
    }
    page
}

macro_rules! codes {
    ($($name:ident $status:literal $code:literal $title:literal $meaning:literal $remedy:literal)*) => {
        $(
            pub(crate) static $name: &ErrorCode = &ErrorCode {
                code: $code,
                status: $status,
                title: $title,
                meaning: $meaning,
                remedy: $remedy,
            };
        )*

        static ALL: [ErrorCode; [$($code),*].len()] = [$(
            ErrorCode {
                code: $code,
                status: $status,
                title: $title,
                meaning: $meaning,
                remedy: $remedy,
            },
        )*];
    };
}

codes! {
    INVALID_JSON 400 "invalid_json" "Invalid JSON"
        "The body is not JSON, is nested deeper than 64 levels, or repeats a key in an object."
        "Look at the line and column in `detail`. Build the body with a JSON library instead of \
         joining strings. Flatten structures that are too deep."

    MALFORMED_REQUEST 400 "malformed_request" "Malformed request"
        "The request is ambiguous: it has no `Host` header or several, or both `Content-Length` \
         and `Transfer-Encoding`; or the line of one of these two, or a chunk size with its \
         extensions, is longer than 64 bytes. The connection is closed. If the server was already \
         reading the body, the body is cut off and the code is `invalid_json`."
        "Send exactly one `Host` header, and either `Content-Length` or `Transfer-Encoding`, \
         without padding. Use an HTTP library, and check what a proxy in between adds."

    INVALID_CLOUDEVENT 400 "invalid_cloudevent" "Invalid CloudEvent"
        "The request is a CloudEvent by its headers, but an attribute is missing, unknown, malformed \
         or out of range; `field` names the attribute. Only version 1.0 is accepted. Nothing was \
         published."
        "Correct the attribute that `field` names; `detail` says what is wrong. Names of attributes \
         consist of a-z and 0-9. The topic is given in the query parameter `topic` or in an extension \
         of that name."

    UNAUTHORIZED 401 "unauthorized" "Unauthorized"
        "The API key is missing, malformed, unknown, wrong, expired or revoked. The response is \
         the same for all of these."
        "Send `Authorization: Bearer ph_…` with a valid key. An operator can create one with \
         `posthorn keys create`."

    FORBIDDEN 403 "forbidden" "Forbidden"
        "The key is valid, but it lacks the required scope; `detail` names the scope."
        "Use another key, or ask an operator to create one with that scope."

    NOT_FOUND 404 "not_found" "Not found"
        "The path or id is unknown or malformed, or it belongs to another tenant. The response is \
         the same for all of these."
        "Check the id and the tenant of the key. Operator keys choose a tenant with the header \
         `Posthorn-Tenant`. Data older than the retention time has been deleted."

    METHOD_NOT_ALLOWED 405 "method_not_allowed" "Method not allowed"
        "The path exists, but it does not support this method."
        "Use one of the methods in the `Allow` header."

    REQUEST_TIMEOUT 408 "request_timeout" "Request timeout"
        "The body did not arrive in time: it must begin within 5 seconds, arrive at 1 KiB per \
         second or faster, and be complete within 30 seconds. Nothing was done."
        "Send the request again, without pauses. Check for a proxy or a network that stalls."

    CONFLICT 409 "conflict" "Conflict"
        "Something with that name already exists."
        "Choose another name, or use the existing one."

    IN_USE 409 "in_use" "In use"
        "Subscriptions use the profile, and no other profile has its name."
        "Change these subscriptions to another profile first."

    REALM_NOT_EMPTY 409 "realm_not_empty" "Realm is not empty"
        "The realm has tenants, event types, or keys that were not revoked; or it is the default realm, \
         which always exists."
        "Delete its tenants and event types and revoke its keys, then delete the realm. A tenant that \
         is being deleted counts until its deletion is done."

    DEFAULT_TENANT 409 "default_tenant" "Default tenant"
        "The default tenant cannot be deleted: operator keys act for it when they name no other."
        "Delete what it has: its subscriptions and topics. Events expire by themselves, or can be \
         expunged."

    LAST_OPERATOR_KEY 409 "last_operator_key" "Last operator key"
        "No other operator key stays valid as long as this one. Without it, nobody could manage \
         the server. A key that expires does not replace one that does not."
        "Create another operator key without `expires_at` (`posthorn keys create --scope \
         operator`), test it, and then revoke this one."

    IDEMPOTENCY_KEY_REUSED 409 "idempotency_key_reused" "Idempotency key reused"
        "An event with different content was already published under the same `Idempotency-Key`. \
         Nothing was published."
        "Use a new key for each event. Use the same key only to repeat exactly the same request."

    DELIVERY_ENDED 409 "delivery_ended" "Delivery has ended"
        "The delivery has already ended, so it cannot be cancelled."
        "Nothing. To deliver it again, retry it."

    DELIVERY_NOT_ENDED 409 "delivery_not_ended" "Delivery has not ended"
        "An attempt of the delivery is in progress, so it cannot be retried by hand."
        "Wait until the attempt has ended, and check its result. If the node died, the attempt's \
         lease expires by itself."

    DELIVERY_SCHEDULED 409 "delivery_scheduled" "Delivery is scheduled"
        "The event was published with `deliver_at`, and that time has not come. The delivery cannot be \
         retried before it."
        "Wait until then. To deliver the content now, cancel the delivery and publish the event \
         again without `deliver_at`."

    EVENT_EXPUNGED 409 "event_expunged" "Payload was removed"
        "The payload of the event was removed, so the event cannot be delivered, published again, \
         tested or shown as a request."
        "Nothing. Publish the event again if its receivers need it."

    DELIVERIES_NOT_ENDED 409 "deliveries_not_ended" "Deliveries have not ended"
        "Deliveries of the event are waiting or in progress, so its payload is still needed. \
         Nothing was removed."
        "Wait until all deliveries have ended, or repeat the request with `cancel=true`, which \
         cancels them."

    TENANT_DELETED 410 "tenant_deleted" "Tenant is deleted"
        "The tenant is being deleted, or was deleted. Nothing can be published, read or changed for \
         it any more, and its keys no longer work."
        "Nothing: a deletion cannot be stopped. `GET /v1/tenants/{id}/deletion` shows how far it is. \
         Create another tenant if you need one; the name is free when the deletion is done."

    VERSION_MISMATCH 412 "version_mismatch" "Version mismatch"
        "The subscription has changed since it was read: `If-Match` is not its current version."
        "Read it again, apply your change to the current version, and send it with the new `ETag`."

    PAYLOAD_TOO_LARGE 413 "payload_too_large" "Payload too large"
        "The request body, or the payload of an event, exceeds its limit."
        "Send less: store large data elsewhere and publish a reference to it. Operators can raise \
         the payload limit in the configuration."

    UNSUPPORTED_MEDIA_TYPE 415 "unsupported_media_type" "Unsupported media type"
        "The body is not `application/json` in UTF-8, or it is compressed. CloudEvents are accepted \
         as JSON only: one of them by `/v1/events`, a batch by `/v1/events/batch`."
        "Send `Content-Type: application/json` and no `Content-Encoding`. For CloudEvents, send \
         `application/cloudevents+json` or `application/cloudevents-batch+json`, or use binary mode."

    INVALID_REQUEST 422 "invalid_request" "Invalid request"
        "A field, header or query parameter is missing, unknown, of the wrong type or out of \
         range; `field` names it."
        "Correct the field that `field` names; `detail` says what is wrong."

    HISTORY_NOT_KEPT 422 "history_not_kept" "History not kept"
        "The replay begins further back than events are kept; `detail` says from when on they are."
        "Begin later. Operators can keep events longer with engine.event_retention."
    UNKNOWN_TOPIC 422 "unknown_topic" "Unknown topic"
        "The event names a topic that does not exist in this tenant."
        "Create it with `PUT /v1/topics/{name}`, or correct the name."

    TOPIC_RESERVED 422 "topic_reserved" "Topic reserved"
        "The topic `posthorn.operational` is for operational events. Only Posthorn itself publishes on it, and \
         nobody creates, changes or deletes it."
        "Use another topic. To get operational events, name the topic in the filter of a subscription."

    TENANT_RESERVED 422 "tenant_reserved" "Tenant reserved"
        "The tenant `system` is for operational events. Posthorn creates it and publishes in it; nobody else does."
        "Use another tenant. To get operational events of all tenants, create a subscription in the tenant \
         `system`."
    UNKNOWN_EVENT_TYPE 422 "unknown_event_type" "Unknown event type"
        "The tenant's realm accepts only events whose type is in its catalogue (`validation` of the \
         realm), and the type of this event is not there or is archived. Nothing was published."
        "Correct the type, or add it with `PUT /v1/event-types/{name}`."

    PAYLOAD_NOT_VALID 422 "payload_not_valid" "Payload does not fit its schema"
        "The tenant's realm checks payloads (`validation` of the realm), and this one fits no version of \
         the schema of its event type. `field` is the place in the payload, as a JSON pointer behind \
         `payload`; `detail` says what is wrong with the newest version. Nothing was published."
        "Correct the payload, or add a version of the schema that allows it."

    INVALID_EVENT_TYPE 422 "invalid_event_type" "Invalid event type"
        "An event type, or a document to import some from, cannot be used: a schema is malformed, too \
         large, refers to something outside of itself or to itself, or the document is not an OpenAPI \
         3.1 document with webhooks. `field` says where, `detail` what. Nothing was changed."
        "Correct what `field` names. Schemas are JSON Schema 2020-12 with `$ref` only to their own \
         `$defs`, without recursion."

    UNKNOWN_PROFILE 422 "unknown_profile" "Unknown profile"
        "The subscription names a profile that does not exist."
        "Use one of `GET /v1/profiles`, or ask an operator to add it to the configuration."

    INVALID_POLICY 422 "invalid_policy" "Invalid policy"
        "The profile with these overrides cannot work; `field` names the setting."
        "Correct what `detail` names. `GET /v1/profiles` shows complete policies to start from."

    INVALID_FILTER 422 "invalid_filter" "Invalid filter"
        "The filter has too many groups, conditions, values or bytes, or a list of values is empty \
         or missing, or matching it with the largest payload may cost more than one event is \
         allowed to cost; `detail` says which."
        "Use fewer groups and smaller conditions, or several subscriptions. `contains` tests cost \
         the most. Operators can raise quotas.match_cost_per_event."

    MATCHING_TOO_COSTLY 422 "matching_too_costly" "Matching too costly"
        "Matching the payload with the payload conditions of the tenant's subscriptions would cost \
         more than one event is allowed to cost. Nothing was published."
        "Make the payload smaller, or use fewer and simpler payload conditions in the tenant's \
         subscriptions. Conditions on topics, types and attributes cost almost nothing. Operators \
         can raise quotas.match_cost_per_event."

    FAN_OUT_EXCEEDED 422 "fan_out_exceeded" "Fan-out exceeded"
        "The event matches more subscriptions than one event may have deliveries. Nothing was \
         published."
        "Narrow the filters, or publish on several topics. Operators can raise quotas.fan_out."

    CATALOG_QUOTA_EXCEEDED 422 "catalog_quota_exceeded" "Catalog quota exceeded"
        "The tenant has reached its quota of subscriptions, topics or profiles, or of the memory \
         they use; `detail` names the quota and the current use. Nothing was changed."
        "Delete what you do not need, or make it smaller. Operators can raise the quota that \
         `detail` names."

    URL_NOT_ALLOWED 422 "url_not_allowed" "URL not allowed"
        "The URL guard refused the URL: its form, scheme, port or address is not allowed."
        "Use a public HTTPS URL. Operators can allow private networks in the configuration."

    HANDSHAKE_REFUSED 422 "handshake_refused" "Handshake refused"
        "The policy has `request.handshake`, and the receiver did not allow requests from this \
         server: it did not answer, or its answer to OPTIONS has no `WebHook-Allowed-Origin` with \
         this server's origin or `*`. Nothing was changed."
        "Make the receiver answer OPTIONS with `WebHook-Allowed-Origin`; `detail` names the origin. \
         Or set `policy.request.handshake` to `none`."

    HANDSHAKE_RATE 422 "handshake_rate" "Handshake rate exceeded"
        "In the handshake, the receiver allowed fewer requests per minute (`WebHook-Allowed-Rate`) \
         than the policy may send. Nothing was changed."
        "Set `policy.limits.rate` to at most the number that `detail` names."

    INVALID_CERTIFICATE 422 "invalid_certificate" "Invalid certificate"
        "The certificate cannot be registered, or the certificate that a policy requires is not \
         registered, revoked, expired or not valid yet; `field` and `detail` say which and why."
        "Give the certificate as PEM text, followed by its chain, and the private key that belongs \
         to it. If the required certificate is missing, register it first with `posthorn \
         certificates create`."

    INVALID_SECRET 422 "invalid_secret" "Invalid secret"
        "A secret that the policy needs is missing, or a given secret is malformed."
        "Give the secret that `detail` names, in the form that `detail` describes."

    SECRET_REQUIRED 422 "secret_required" "Secret required"
        "The change would send stored secrets to an origin (scheme, host and port) that they were \
         not given for, because the URL, the token server, the authentication method or the \
         profile is different. `detail` names the secrets. Nothing was changed. Keys that only \
         sign and seeds of one-time codes are not affected."
        "Give the secrets that `detail` names again, in `secrets` of the same request. To change a \
         profile that subscriptions use, create a new profile, and change each subscription to it \
         with its secrets."

    PUSH_ENDPOINT_UNKNOWN 422 "push_endpoint_unknown" "Unknown push endpoint"
        "The endpoint of the push destination begins like an endpoint of this server, but is none. \
         It was altered."
        "Give the endpoint exactly as the browser shows it."

    PUSH_SERVICE_NOT_ALLOWED 422 "push_service_not_allowed" "Push service not allowed"
        "The endpoint belongs to a push service that this server does not send to."
        "Give the endpoint exactly as the browser shows it. Operators: add the host of the service \
         to push.services."

    PUSH_ENDPOINT_GONE 422 "push_endpoint_gone" "Push endpoint is gone"
        "The browser has unsubscribed, or was removed because it did not connect for a long time."
        "Subscribe again in the browser, and give the new endpoint."

    PUSH_ENDPOINT_BOUND 422 "push_endpoint_bound" "Push endpoint of another sender"
        "The browser created the endpoint for another application server key than this tenant's. \
         Only the owner of that key may send to it."
        "Unsubscribe in the browser, and subscribe again with the key of `GET /v1/push/key`."

    INVALID_PUSH_KEYS 422 "invalid_push_keys" "Invalid push keys"
        "`p256dh` or `auth` of the push destination is not a valid key of a browser; `detail` says \
         which."
        "Give both as `PushSubscription.toJSON()` shows them. Only for agents of this server may \
         both be left out."

    RATE_LIMITED 429 "rate_limited" "Rate limited"
        "The key exceeded its rate limit for requests or events, or the tenant tests subscriptions \
         or starts redrives too often. Nothing was done."
        "Retry after the seconds in `Retry-After`. Every event of a batch counts. An operator can \
         create a key with a higher `rate_limit`."

    QUOTA_EXCEEDED 429 "quota_exceeded" "Quota exceeded"
        "The tenant has reached its limit of unfinished deliveries, or of sessions and portal links; \
         `detail` says which. Nothing was published or created."
        "Retry after the seconds in `Retry-After`. Find subscriptions whose receivers fail \
         (`posthorn deliveries list --state pending`), and fix, pause or delete them; or end sessions \
         that nobody needs (`posthorn sessions list`). Operators can raise \
         admission.pending_per_tenant and quotas.sessions."

    TOO_MANY_FAILURES 429 "too_many_failures" "Too many failures"
        "Too many requests without a valid key came from this address within a minute. Requests \
         with a valid key are still served."
        "Correct the key, and retry after the seconds in `Retry-After`."

    TOO_MANY_STREAMS 429 "too_many_streams" "Too many streams"
        "The tenant, or the server as a whole, has as many open streams (`GET /v1/stream`) as are \
         allowed at once; `detail` says which limit was reached."
        "Close streams that nobody reads, and share one among several readers. Filters select what each of \
         them shows. Retry after the seconds in `Retry-After`."

    TOO_MANY_BODIES 429 "too_many_bodies" "Too many bodies"
        "The tenant's large request bodies in progress have reached their limit in bytes \
         (server.body_memory_per_tenant), and none finished within two seconds. Nothing was done."
        "Send fewer large requests at once, or smaller ones. Retry after the seconds in \
         `Retry-After`."

    INTERNAL 500 "internal" "Internal error"
        "A defect in Posthorn. The details are in the server's log."
        "Repeat publishes with the same `Idempotency-Key`. Please report the error with the log \
         lines of that time."

    PUSH_NOT_ENABLED 501 "push_not_enabled" "Push is not enabled"
        "This server has no push service and sends to no other, so nothing can be delivered to \
         browsers."
        "Operators: set push.enabled, or start it with `posthorn serve --push`. To send to the push \
         services of browsers, name them in push.services."

    PUSH_CONTACT_MISSING 501 "push_contact_missing" "Push contact is not set"
        "Other push services ask whom to write to about what this server sends, and this server \
         does not say."
        "Operators: set push.contact, e.g. mailto:operations@example.com."

    UNAVAILABLE 503 "unavailable" "Unavailable"
        "The store cannot be reached, or the server is starting, stopping or overloaded. Nothing \
         was done."
        "Retry after the seconds in `Retry-After`."

    OVERLOADED 503 "overloaded" "Overloaded"
        "The tenant publishes faster than events can be stored. This publish was refused at once \
         instead of waiting. Nothing was published."
        "Retry after the seconds in `Retry-After`, with the same `Idempotency-Key` and increasing \
         delays. Publish in batches: they cost far less. Operators: see \
         posthorn_commit_wait_seconds and admission.commit_delay."

    TOO_MANY_CONNECTIONS 503 "too_many_connections" "Too many connections"
        "The server has reached its limit of connections (server.connections), or this address has \
         reached its own (server.connections_per_address). Only health, readiness and metrics are \
         answered. The connection is closed."
        "Reuse connections instead of opening one for each request. Retry after the seconds in \
         `Retry-After`. Operators: raise the limit; behind a proxy, raise the limit per address."

    BODIES_FULL 503 "bodies_full" "No room for bodies"
        "The large request bodies in progress of all callers together have reached the server's \
         limit in bytes (server.body_memory), and no room became free within two seconds. Nothing was \
         done."
        "Retry after the seconds in `Retry-After`. Smaller requests find room sooner."

    DISK_FULL 503 "disk_full" "Disk full"
        "The server's disk is full or nearly full, so new events are refused. Accepted events are \
         safe. They are still delivered as long as there is any space left."
        "Operators: free or add space, or shorten engine.event_retention; publishing then works again \
         without a restart. Publishers: retry after the seconds in `Retry-After`."

    OUTCOME_UNKNOWN 503 "outcome_unknown" "Outcome unknown"
        "The connection to the store broke during a commit: the change may or may not have been \
         made."
        "Repeat a publish with the same `Idempotency-Key`: it is then published exactly once. \
         Before you repeat anything else, check whether it was done."
}

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
        "# Error codes\n\n<!-- Made from crates/api/src/codes.rs; UPDATE_GOLDEN=1 cargo test -p \
         posthorn-api writes it anew. -->\n\nEvery error of the native API is a problem document \
         with one of these codes. They never change their\nmeaning. `posthorn explain CODE` shows \
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
        "Look at the line and column in `detail`. Make the body with a JSON library rather than by \
         joining texts; flatten what is too deep."

    MALFORMED_REQUEST 400 "malformed_request" "Malformed request"
        "The request can be read in two ways: it has no `Host` or more than one, or both \
         `Content-Length` and `Transfer-Encoding`, or one of them, or the size of a chunk with its \
         extensions, in a line of more than 64 bytes. The connection is closed. A body that is being \
         read by then breaks off, which is `invalid_json`."
        "Send exactly one `Host`, and one of the two, without padding. Make requests with an HTTP library; look at what \
         a proxy in between adds."

    UNAUTHORIZED 401 "unauthorized" "Unauthorized"
        "There is no key, or it is malformed, unknown, wrong, expired or revoked. The answer is the \
         same for all of these."
        "Send `Authorization: Bearer ph_…` with a key that works. An operator can create one with \
         `posthorn keys create`."

    FORBIDDEN 403 "forbidden" "Forbidden"
        "The key is valid, but it has not the scope this needs; `detail` names the scope."
        "Use another key, or have an operator create one with that scope."

    NOT_FOUND 404 "not_found" "Not found"
        "There is no such thing here: the path or id is unknown or malformed, or it belongs to \
         another tenant, which looks the same."
        "Check the id and the tenant of the key. Operator keys name a tenant with the header \
         `Posthorn-Tenant`. What is older than the retention time is gone."

    METHOD_NOT_ALLOWED 405 "method_not_allowed" "Method not allowed"
        "The path exists, but not with this method."
        "Use one of the methods in the `Allow` header."

    REQUEST_TIMEOUT 408 "request_timeout" "Request timeout"
        "The body did not arrive in time: it must begin within 5 seconds, come with at least 1 KiB a \
         second, and be complete within 30 seconds. Nothing was done."
        "Send it again, in one go; look for a proxy or a network that stalls."

    CONFLICT 409 "conflict" "Conflict"
        "There is one with that name already."
        "Choose another name, or use the one that exists."

    IN_USE 409 "in_use" "In use"
        "Subscriptions name the profile, and there is no other one with its name."
        "Let them name another one first."

    LAST_OPERATOR_KEY 409 "last_operator_key" "Last operator key"
        "No other operator key works as long as this one, so that nobody could manage the server without \
         it. A key that expires does not replace one that does not."
        "Create another operator key without `expires_at` (`posthorn keys create --scope operator`), try it, \
         and then revoke this one."

    IDEMPOTENCY_KEY_REUSED 409 "idempotency_key_reused" "Idempotency key reused"
        "An event was published under the same `Idempotency-Key` with other contents. Nothing was \
         published."
        "Use a fresh key for each event, and the same key only to repeat the very same request."

    DELIVERY_ENDED 409 "delivery_ended" "Delivery has ended"
        "The delivery has ended, so there is nothing to cancel."
        "Nothing; or retry it when it should be made again."

    DELIVERY_NOT_ENDED 409 "delivery_not_ended" "Delivery has not ended"
        "An attempt of the delivery is under way, so it cannot be retried by hand."
        "Wait until the attempt is over and look at what became of it; the lease it runs under ends by \
         itself when a node dies."

    VERSION_MISMATCH 412 "version_mismatch" "Version mismatch"
        "The subscription was changed since it was read: `If-Match` does not name its present version."
        "Read it again, apply the change to what it is now, and send it with the new `ETag`."

    PAYLOAD_TOO_LARGE 413 "payload_too_large" "Payload too large"
        "The body of the request, or the payload of an event, is over its limit."
        "Send less: put large data elsewhere and publish a reference to it. Operators can raise the \
         limit of payloads in the config."

    UNSUPPORTED_MEDIA_TYPE 415 "unsupported_media_type" "Unsupported media type"
        "The body is not `application/json` in UTF-8, or it is compressed."
        "Send `Content-Type: application/json` and no `Content-Encoding`."

    INVALID_REQUEST 422 "invalid_request" "Invalid request"
        "A field, header or query parameter is missing, unknown, of the wrong type or out of bounds; \
         `field` names it."
        "Correct what `field` and `detail` say."

    UNKNOWN_TOPIC 422 "unknown_topic" "Unknown topic"
        "The event names a topic that does not exist in this tenant."
        "Create it with `PUT /v1/topics/{name}`, or correct the name."

    UNKNOWN_PROFILE 422 "unknown_profile" "Unknown profile"
        "The subscription names a profile that does not exist."
        "Use one of `GET /v1/profiles`, or have an operator add it to the config."

    INVALID_POLICY 422 "invalid_policy" "Invalid policy"
        "The profile with these overrides can never work; `field` names the knob."
        "Correct what `detail` says. `GET /v1/profiles` shows complete policies to start from."

    INVALID_FILTER 422 "invalid_filter" "Invalid filter"
        "The filter has too many groups, conditions or bytes, or matching it with the largest payload \
         may cost more than an event may; `detail` says which."
        "Use fewer groups and smaller conditions, or several subscriptions. What costs most are \
         `contains` tests. Operators can raise quotas.match_cost_per_event."

    MATCHING_TOO_COSTLY 422 "matching_too_costly" "Matching too costly"
        "To find out which subscriptions want the event, its payload would have to be compared with \
         more payload conditions than one event may cost. Nothing was published."
        "Make the payload smaller, or use fewer and simpler payload conditions in the tenant's \
         subscriptions: conditions on topics, types and attributes cost next to nothing. Operators \
         can raise quotas.match_cost_per_event."

    FAN_OUT_EXCEEDED 422 "fan_out_exceeded" "Fan-out exceeded"
        "More subscriptions want the event than one event may have deliveries. Nothing was published."
        "Narrow the filters, or publish on several topics. Operators can raise quotas.fan_out."

    CATALOG_QUOTA_EXCEEDED 422 "catalog_quota_exceeded" "Catalog quota exceeded"
        "The tenant has as many subscriptions, topics or profiles as it may have, or as many bytes of \
         them in memory; `detail` says what there is and which quota it is. Nothing was changed."
        "Delete what is not needed, or make it smaller. Operators can raise the quota that `detail` \
         names."

    URL_NOT_ALLOWED 422 "url_not_allowed" "URL not allowed"
        "The URL guard refuses the URL: its form, scheme, port or address is not allowed."
        "Use a public HTTPS URL. Operators can allow private networks in the config."

    INVALID_CERTIFICATE 422 "invalid_certificate" "Invalid certificate"
        "A certificate cannot be registered as it is, or the one that a policy asks for is not in \
         the registry, revoked or out of date; `field` and `detail` say which and why."
        "Give the PEM text of the certificate, its chain behind it, and the key that belongs to it; \
         or register the missing one first with `posthorn certificates create`."

    INVALID_SECRET 422 "invalid_secret" "Invalid secret"
        "A secret that the policy needs is missing, or one that was given is malformed."
        "Give the secret that `detail` names, in the form it asks for."

    SECRET_REQUIRED 422 "secret_required" "Secret required"
        "The change would send stored secrets to an origin (scheme, host and port) that they were not given \
         for: the URL, the token server, the way of authentication or the profile is another one. `detail` \
         names them. Nothing was changed. Keys that only sign and seeds of one-time codes are not concerned."
        "Give the secrets that `detail` names again, in `secrets` of the same request. To change a profile \
         that subscriptions use, create another profile, and change each subscription to it with its secrets."

    PUSH_ENDPOINT_UNKNOWN 422 "push_endpoint_unknown" "Unknown push endpoint"
        "The endpoint of a push destination is not one of this server's, or was altered."
        "Give the endpoint exactly as the browser has it. Browsers that are connected to another \
         push service cannot be reached from here."

    PUSH_ENDPOINT_GONE 422 "push_endpoint_gone" "Push endpoint is gone"
        "The browser has unsubscribed, or was not seen for so long that it was forgotten."
        "Let the browser subscribe again, and give its new endpoint."

    PUSH_ENDPOINT_BOUND 422 "push_endpoint_bound" "Push endpoint of another sender"
        "The browser made the endpoint for another application server key than this tenant's, so \
         that only the owner of that key may send to it."
        "Let the browser unsubscribe, and subscribe with the key of `GET /v1/push/key`."

    INVALID_PUSH_KEYS 422 "invalid_push_keys" "Invalid push keys"
        "`p256dh` or `auth` of a push destination are not the keys of a browser; `detail` says which."
        "Give both as `PushSubscription.toJSON()` shows them, or no keys at all."

    RATE_LIMITED 429 "rate_limited" "Rate limited"
        "The key makes more requests, or publishes more events, than it may; or the tenant tests \
         subscriptions or begins redrives too often. Nothing was done."
        "Repeat after the seconds in `Retry-After`. Publish in batches only as fast as the rate of \
         events allows; an operator can create a key with a higher `rate_limit`."

    QUOTA_EXCEEDED 429 "quota_exceeded" "Quota exceeded"
        "The tenant has as many unfinished deliveries as it may have. Nothing was published."
        "Repeat after the seconds in `Retry-After`; look for subscriptions whose receivers fail \
         (`posthorn deliveries list --state pending`), and mend, pause or delete them. Operators can \
         raise admission.pending_per_tenant."

    TOO_MANY_FAILURES 429 "too_many_failures" "Too many failures"
        "Too many requests without a valid key came from this address within a minute. Requests with \
         a valid key are still served."
        "Correct the key, and repeat after the seconds in `Retry-After`."

    TOO_MANY_BODIES 429 "too_many_bodies" "Too many bodies"
        "The tenant has as many bytes of large bodies under way as it may have \
         (server.body_memory_per_tenant), and none ended within two seconds. Nothing was done."
        "Send fewer large requests at once, or smaller ones; repeat after the seconds in \
         `Retry-After`."

    INTERNAL 500 "internal" "Internal error"
        "A defect of ours. The details are in the server's log."
        "Repeat publishes with the same `Idempotency-Key`. Please report it with the log lines of \
         that time."

    PUSH_NOT_ENABLED 501 "push_not_enabled" "Push is not enabled"
        "This server has no push service, so that nothing can be delivered to browsers."
        "Operators: set push.enabled, or start it with `posthorn serve --push`."

    UNAVAILABLE 503 "unavailable" "Unavailable"
        "The store cannot be reached, or the server is starting, stopping or overloaded. Nothing was \
         done."
        "Repeat after the seconds in `Retry-After`."

    OVERLOADED 503 "overloaded" "Overloaded"
        "The tenant's publishes come faster than they can be stored, so that this one was refused at once instead \
         of waiting. Nothing was published."
        "Repeat after the seconds in `Retry-After`, with the same `Idempotency-Key`, and with \
         growing pauses. Publish in batches: they cost far less. Operators: see \
         posthorn_commit_wait_seconds, and admission.commit_delay."

    TOO_MANY_CONNECTIONS 503 "too_many_connections" "Too many connections"
        "There are as many connections as the server may have (server.connections), or as this address \
         may have (server.connections_per_address). Only health, readiness and metrics are answered. \
         The connection is closed."
        "Use connections again instead of opening one for each request; repeat after the seconds in \
         `Retry-After`. Operators: raise the limit, or that of one address behind a proxy."

    BODIES_FULL 503 "bodies_full" "No room for bodies"
        "All callers together have as many bytes of large bodies under way as the server takes \
         (server.body_memory), and no room came free within two seconds. Nothing was done."
        "Repeat after the seconds in `Retry-After`; smaller requests find room sooner."

    DISK_FULL 503 "disk_full" "Disk full"
        "The disk of the server is full or nearly full, so that nothing new is taken in. What was \
         accepted is safe; it goes on being delivered while there is any room at all."
        "Operators: free or add space, or shorten engine.event_retention; publishes are taken in again by \
         themselves. Publishers: repeat after the seconds in `Retry-After`."

    OUTCOME_UNKNOWN 503 "outcome_unknown" "Outcome unknown"
        "The connection to the store broke during commit: the change may or may not have been made."
        "Repeat a publish with the same `Idempotency-Key`: it is then made exactly once. Before you \
         repeat anything else, look whether it was done."
}

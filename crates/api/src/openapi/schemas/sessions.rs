//! The schemas of sessions of pages, and of links into the portal.

use posthorn_domain::{
    Capability, SESSION_BACK_BYTES_MAX, SESSION_LABEL_BYTES_MAX, SESSION_NAME_BYTES_MAX,
    SessionKind,
};
use serde_json::{Value, json};

use super::{count, id, object, span, text, time};

fn capabilities() -> Value {
    let names = Capability::ALL.map(Capability::as_str);
    json!({"type": "array", "items": {"enum": names}, "maxItems": names.len()})
}

pub(super) fn all() -> Value {
    let about = |mut schema: Value, description: &str| {
        schema["description"] = json!(description);
        schema
    };
    let maybe = |mut schema: Value, description: &str| {
        schema["type"] = json!(["string", "null"]);
        schema["description"] = json!(description);
        schema
    };
    let bounded = |max: usize| json!({"type": "string", "maxLength": max});
    json!({
        "NewPortalLink": object(&[], json!({
            "name": about(
                bounded(SESSION_NAME_BYTES_MAX),
                "Your own word for the customer: shown in the portal, in lists of sessions and in the audit log",
            ),
            "capabilities": about(
                capabilities(),
                "What whoever redeems the link may do; `view` is always part of it. When absent, all but `see_secret`",
            ),
            "redeem_within": about(span(), "How long the link can be redeemed, up to 1d; 5m when absent"),
            "expires_in": about(span(), "How long the session lasts then, up to 7d; 1h when absent"),
            "label": about(
                json!({"type": "string", "minLength": 1, "maxLength": SESSION_LABEL_BYTES_MAX}),
                "Your own name for the session, no secret: all of a tenant with the same label can be ended at once",
            ),
            "return_url": about(
                json!({"type": "string", "format": "uri", "maxLength": SESSION_BACK_BYTES_MAX}),
                "Where the customer goes when the session has ended: an https URL",
            ),
        })),
        "CreatedPortalLink": object(&["id", "url", "token", "expires_at"], json!({
            "id": about(id("ses"), "The id of the link, to take it back with"),
            "url": about(json!({"type": "string", "format": "uri"}), "Where to send the customer. Works once"),
            "token": about(text(), "What the URL has behind the sign #. Shown only now"),
            "expires_at": about(time(), "Until when the link can be redeemed"),
        })),
        "Session": object(
            &["id", "kind", "name", "tenant", "realm", "scopes", "capabilities", "label", "return_url", "opener",
              "key", "created_at", "expires_at"],
            json!({
                "id": id("ses"),
                "kind": {
                    "enum": SessionKind::ALL.map(SessionKind::as_str),
                    "description": "Of the console or of the portal; `link` is one that was not redeemed yet",
                },
                "name": text(),
                "tenant": maybe(id("ten"), "Whose it is; null for those of realms and operators"),
                "realm": maybe(json!({}), "Whose it is; null for those of tenants and operators"),
                "scopes": {
                    "type": "array", "items": text(),
                    "description": "What it may do in the console",
                },
                "capabilities": about(capabilities(), "What it may do in the portal"),
                "label": maybe(json!({}), "The name that it was given to end it by"),
                "return_url": maybe(json!({}), "Where the customer goes when it has ended"),
                "opener": {
                    "enum": ["key", "proxy", "provider", "link"],
                    "description": "On whose word it was opened",
                },
                "key": maybe(json!({}), "The key, or the certificate, that it stands and falls with"),
                "created_at": time(),
                "expires_at": time(),
            }),
        ),
        "EndedSessions": object(&["ended"], json!({
            "ended": about(count(), "How many sessions and links were ended"),
        })),
    })
}

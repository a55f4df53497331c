//! The targets: one reader each, and what must be true of what it reads.

mod address;
mod cloudevents;
mod dialects;
mod documents;
mod keys;
mod notificaties;
mod publish;
mod push;
mod response;
mod signatures;
mod sockets;
mod texts;
mod traces;
mod url;

/// One reader, under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What it reads, in a few words.
    pub what: &'static str,
    /// Panics when something does not hold; otherwise says whether the input was accepted.
    pub run: fn(&[u8]) -> bool,
    /// Words worth putting into an input.
    pub words: &'static [&'static str],
}

/// All of them.
pub const TARGETS: [Target; 27] = [
    Target {
        name: "url",
        what: "a receiver's URL, through the guard",
        run: url::check,
        words: url::WORDS,
    },
    Target {
        name: "address",
        what: "an address, through the guard",
        run: address::check,
        words: &[],
    },
    Target {
        name: "allow-rule",
        what: "an operator's allow rule",
        run: address::rule,
        words: address::WORDS,
    },
    Target {
        name: "header-policy",
        what: "a custom header of a policy",
        run: documents::header,
        words: documents::HEADERS,
    },
    Target {
        name: "retry-after",
        what: "a Retry-After header",
        run: texts::retry_after,
        words: texts::DATES,
    },
    Target { name: "span", what: "a duration", run: texts::span, words: texts::SPANS },
    Target { name: "template", what: "a template", run: texts::template, words: texts::TEMPLATES },
    Target {
        name: "webhook-secret",
        what: "a Standard Webhooks secret or key",
        run: signatures::secret,
        words: signatures::WORDS,
    },
    Target {
        name: "webhook-signature",
        what: "a Standard Webhooks signature",
        run: signatures::webhook,
        words: signatures::WORDS,
    },
    Target {
        name: "body-hmac",
        what: "an HMAC header",
        run: signatures::body_hmac,
        words: signatures::WORDS,
    },
    Target { name: "jwt", what: "a ZGW token", run: signatures::jwt, words: signatures::WORDS },
    Target {
        name: "id-token",
        what: "an ID token of a login provider, or the list of its keys",
        run: signatures::id_token,
        words: signatures::WORDS,
    },
    Target { name: "api-key", what: "an API key", run: keys::api_key, words: keys::WORDS },
    Target {
        name: "session-token",
        what: "a token of a session or a link",
        run: keys::session_token,
        words: keys::WORDS,
    },
    Target { name: "cursor", what: "a list's cursor", run: keys::cursor, words: keys::WORDS },
    Target { name: "vault", what: "a secret at rest", run: keys::vault, words: &[] },
    Target {
        name: "documents",
        what: "a filter, or a policy patch, as JSON",
        run: documents::document,
        words: documents::WORDS,
    },
    Target {
        name: "publish",
        what: "a published event, or a batch of them",
        run: publish::check,
        words: publish::WORDS,
    },
    Target {
        name: "cloudevent",
        what: "a published CloudEvent, in every mode",
        run: cloudevents::check,
        words: cloudevents::WORDS,
    },
    Target {
        name: "traceparent",
        what: "the header traceparent",
        run: traces::check,
        words: traces::WORDS,
    },
    Target {
        name: "callback-target",
        what: "the query of an EFGS callback",
        run: dialects::callback_target,
        words: dialects::WORDS,
    },
    Target {
        name: "push-sender",
        what: "who sends a push message, in two headers",
        run: push::sender,
        words: push::SENDERS,
    },
    Target {
        name: "push-parameters",
        what: "an Encryption or Crypto-Key header",
        run: push::parameters,
        words: push::PARAMETERS,
    },
    Target {
        name: "push-token",
        what: "the name of an endpoint or of a message",
        run: push::token,
        words: push::TOKENS,
    },
    Target {
        name: "notificaties",
        what: "a body of the Notificaties API",
        run: notificaties::check,
        words: notificaties::WORDS,
    },
    Target {
        name: "socket-message",
        what: "what an agent writes on its socket",
        run: sockets::message,
        words: sockets::WORDS,
    },
    Target {
        name: "response",
        what: "whatever a receiver answers",
        run: response::check,
        words: response::WORDS,
    },
];

/// The first line of an input, and the rest.
fn first_line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &[]),
    }
}

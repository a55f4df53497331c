//! Every limit the domain itself enforces, with its reason.

/// Default for the largest payload of one event: webhooks are notifications, not file transfers.
pub const PAYLOAD_BYTES_DEFAULT: usize = 256 * 1024;
/// Nesting allowed in a published JSON payload; deeper documents break recursive receivers.
pub const JSON_DEPTH_MAX: usize = 64;
/// How far ahead the time may be at which an event is to be delivered: a year, however long.
pub const DELIVER_AT_AHEAD_MAX: crate::Span = crate::Span::from_secs(366 * 86_400);
/// The shortest retention an event may ask for. Events are removed in rounds, not to the second.
pub const RETENTION_MIN: crate::Span = crate::Span::from_secs(60);
/// Attributes of one event: they are compared with every filter, so their number is bounded.
pub const ATTRIBUTES_MAX: usize = 64;
/// Longest attribute name in bytes.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 100;
/// Longest attribute value in bytes (the Notificaties API allows 1,000 characters).
pub const ATTRIBUTE_VALUE_BYTES_MAX: usize = 4_000;
/// Groups in one filter.
pub const FILTER_GROUPS_MAX: usize = 64;
/// Conditions of all groups of one filter: topics, types, values of attributes and nodes of payload conditions.
/// Every event is compared with all of them.
pub const FILTER_CONDITIONS_MAX: usize = 1_000;
/// Values of one attribute or of one test `in`: longer lists belong to the publisher, who can send what
/// they have in common as one attribute.
pub const FILTER_VALUES_MAX: usize = 100;
/// Nodes in one payload condition: bounds the cost of matching one event.
pub const CONDITION_NODES_MAX: usize = 64;
/// Depth of one payload condition.
pub const CONDITION_DEPTH_MAX: usize = 8;
/// Longest pattern of event types: those have at most 128 characters.
pub const PATTERN_BYTES_MAX: usize = 256;
/// Longest path into a payload, as deep as payloads may be.
pub const POINTER_BYTES_MAX: usize = 1_024;
/// One filter as JSON. It is kept in memory on every node, several times as large.
pub const FILTER_BYTES_MAX: usize = 128 * 1024;
/// What a subscription or a tenant's profile changes in a policy, as JSON; kept in memory likewise.
pub const POLICY_BYTES_MAX: usize = 32 * 1024;
/// Longest template of a policy: what is longer fits into no header and hardly into a URL.
pub const TEMPLATE_BYTES_MAX: usize = 4_096;
/// Longest template of a log line: a policy's lines are for searching, not for keeping data.
pub const LOG_TEMPLATE_BYTES_MAX: usize = 1_024;
/// Longest text of a log line once it is filled in, and of each of its fields: all that is kept of an
/// answer, and some words around it.
pub const LOG_TEXT_BYTES_MAX: usize = 18 << 10;
/// Query parameters, or paths of families, of one policy.
pub const PARAMETERS_MAX: usize = 64;
/// Ways to authenticate in one policy.
pub const AUTHS_MAX: usize = 8;
/// Attempts any schedule may ask for; above this a schedule is a mistake.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The longest wait between two attempts.
pub const WAIT_DAYS_MAX: u64 = 30;
/// Custom headers per subscription. Platforms give their customers as many as they like; these many of the usual length still fit
/// into the 16 KiB that receivers take, and each attempt makes them anew.
pub const HEADERS_MAX: usize = 64;
/// Longest custom header name in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 64;
/// Longest custom header value in bytes.
pub const HEADER_VALUE_BYTES_MAX: usize = 4_096;
/// Bytes of a response body read before the connection is dropped.
pub const RESPONSE_READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response body kept in the attempt history.
pub const RESPONSE_KEPT_BYTES_MAX: usize = 16 * 1024;
/// Longest description of a thing, for people.
pub const DESCRIPTION_BYTES_MAX: usize = 1_000;
/// Secrets of one subscription, those of rotations included.
pub const SECRETS_MAX: usize = 64;
/// Labels of one thing: they are kept in memory with it.
pub const LABELS_MAX: usize = 32;
/// Longest label name in bytes.
pub const LABEL_NAME_BYTES_MAX: usize = 64;
/// Names and texts of all labels of one thing.
pub const LABELS_BYTES_MAX: usize = 64 * 1024;
/// Events in one batch publish.
pub const BATCH_EVENTS_MAX: usize = 1_000;

//! Every statement, by name. One file each, so that a statement can be read, and its plan asked
//! for, as it stands. A test prepares them all against a migrated database.

macro_rules! statements {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(crate) const $name: &str = include_str!(concat!("sql/", $file, ".sql"));)+

        /// All of them, with their names.
        #[doc(hidden)]
        pub const ALL: &[(&str, &str)] = &[$(($file, $name)),+];
    };
}

statements! {
    ACCEPT = "accept",
    ATTEMPTS = "attempts",
    CATALOG_BUMP = "catalog_bump",
    CATALOG_VERSION = "catalog_version",
    CLAIM = "claim",
    COUNT_DELIVERIES = "count_deliveries",
    COUNT_EVENTS = "count_events",
    DELIVERIES_OF = "deliveries_of",
    DEPART = "depart",
    DONE_CANCEL = "done_cancel",
    DONE_FIND = "done_find",
    DONE_REVIVE = "done_revive",
    DUE_SUBSCRIPTIONS = "due_subscriptions",
    EVENT_DELIVERIES = "event_deliveries",
    EVENT_FIND = "event_find",
    EVENT_LIST = "event_list",
    EVENTS_KNOWN = "events_known",
    EVENTS_OF = "events_of",
    HEARTBEAT = "heartbeat",
    HOLDERS = "holders",
    KEY_CREATE = "key_create",
    KEY_FIND = "key_find",
    KEY_REVOKE = "key_revoke",
    KEYS_OF = "keys_of",
    LANES_TAKEN = "lanes_taken",
    LIVE_END = "live_end",
    LIVE_FIND = "live_find",
    LOCK_EXCLUSIVE = "lock_exclusive",
    LOCK_LANES_OF = "lock_lanes_of",
    LOCK_SHARED = "lock_shared",
    NODES = "nodes",
    PENDING = "pending",
    PROMOTE = "promote",
    PRUNE_BITE = "prune_bite",
    PRUNE_KEYS = "prune_keys",
    RECORD = "record",
    REDRIVE_CANCEL = "redrive_cancel",
    REDRIVE_COUNT = "redrive_count",
    REDRIVE_CREATE = "redrive_create",
    REDRIVE_FIND = "redrive_find",
    REDRIVE_HOLD = "redrive_hold",
    REDRIVE_LIST = "redrive_list",
    REDRIVE_NEXT = "redrive_next",
    REDRIVE_PROGRESS = "redrive_progress",
    SHARDS_FREE = "shards_free",
    SHARDS_RELEASE = "shards_release",
    SHARDS_TAKE = "shards_take",
    SINCE_KEYS = "since_keys",
    SINCE_SUBSCRIPTIONS = "since_subscriptions",
    SINCE_TENANTS = "since_tenants",
    SINCE_TOPICS = "since_topics",
    SUBSCRIPTION_CREATE = "subscription_create",
    SUBSCRIPTION_DELETE = "subscription_delete",
    SUBSCRIPTION_UPDATE = "subscription_update",
    SUBSCRIPTION_VERSION = "subscription_version",
    SWEEP_FIND = "sweep_find",
    SWEEP_FORGET = "sweep_forget",
    TENANT_CREATE = "tenant_create",
    TENANT_EXISTS = "tenant_exists",
    TENANT_VERSION = "tenant_version",
    TOPIC_PUT = "topic_put",
    TOPIC_REMOVE = "topic_remove",
}

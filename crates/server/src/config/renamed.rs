//! Keys that had another name in a former version: an error for one of them names the new one.

const RENAMED: [(&str, &str); 41] = [
    ("server.write_rate", "server.write_per_second_min"),
    ("server.body", "server.body_max"),
    ("server.batch_body", "server.batch_body_max"),
    ("server.bodies", "server.body_memory"),
    ("server.bodies_per_tenant", "server.body_memory_per_tenant"),
    ("server.head", "server.head_max"),
    ("store.pool", "store.connections"),
    ("store.wait", "store.start_timeout"),
    ("egress.connection_age", "egress.connection_age_max"),
    ("engine.payload", "engine.payload_max"),
    ("engine.heartbeat", "engine.heartbeat_interval"),
    ("engine.poll", "engine.poll_interval"),
    ("engine.maintenance", "engine.maintenance_interval"),
    ("engine.retention", "engine.event_retention"),
    ("engine.dead_retention", "engine.dead_letter_retention"),
    ("engine.key_retention", "engine.idempotency_retention"),
    ("engine.drain", "engine.drain_timeout"),
    ("admission.key_rate", "admission.key_requests_per_second"),
    ("admission.pending_quota", "admission.pending_per_tenant"),
    ("admission.pending_refresh", "admission.pending_count_interval"),
    ("admission.disk_warn", "admission.disk_warn_percent"),
    ("admission.disk_refuse", "admission.disk_refuse_percent"),
    ("admission.disk_refresh", "admission.disk_check_interval"),
    ("admission.auth_failures", "admission.auth_failures_per_minute"),
    ("admission.tests", "admission.tests_per_minute"),
    ("admission.redrives", "admission.redrives_per_minute"),
    ("admission.refusal_hold", "admission.refusal_delay"),
    ("quotas.catalog", "quotas.catalog_memory"),
    ("quotas.match_event", "quotas.match_cost_per_event"),
    ("quotas.match_second", "quotas.match_cost_per_second"),
    ("push.stored_limit", "push.stored_max"),
    ("push.body", "push.body_max"),
    ("push.ping_gap", "push.ping_interval_min"),
    ("push.upkeep", "push.maintenance_interval"),
    ("push.drain", "push.drain_timeout"),
    ("telemetry.upkeep", "telemetry.maintenance_interval"),
    ("log.policy_lines", "log.policy_lines_per_second"),
    ("dialects.efgs.callback_id_length", "dialects.efgs.callback_id_length_max"),
    ("dialects.efgs.url_length", "dialects.efgs.url_length_max"),
    (
        "dialects.notificaties.authorizations.cache",
        "dialects.notificaties.authorizations.cache_time",
    ),
    (
        "dialects.notificaties.authorizations.stale",
        "dialects.notificaties.authorizations.stale_time",
    ),
];

/// The name that a key has now.
pub(super) fn new_name(key: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == key).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::super::layers::Layers;
    use super::*;

    #[test]
    fn every_new_name_is_a_key_and_no_old_one_is() {
        let defaults = Layers::defaults();
        let is_key =
            |key: &str| defaults.merged().pointer(&format!("/{}", key.replace('.', "/"))).is_some();
        for (old, new) in RENAMED {
            assert!(is_key(new), "{new} is a key");
            assert!(!is_key(old), "{old} is no key any more");
        }
    }
}

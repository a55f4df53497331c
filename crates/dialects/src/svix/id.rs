//! Ids as this API shows them. Each is one of ours in another writing, so there is no table: it can be read back, and sorts the
//! same way.

use posthorn_domain::{DeliveryId, EventId, JobId, SubscriptionId, TenantId, Timestamp, base62};

/// Beginnings of ids.
pub(super) const APPLICATION: &str = "app_";
pub(super) const ENDPOINT: &str = "ep_";
pub(super) const DESTINATION: &str = "sink_";
pub(super) const MESSAGE: &str = "msg_";
pub(super) const ATTEMPT: &str = "atmpt_";
pub(super) const TASK: &str = "qtask_";
pub(super) const ORGANISATION: &str = "org_";

/// Longest id that somebody may give a thing.
pub(super) const UID_BYTES_MAX: usize = 255;

fn write(prefix: &str, id: &[u8; 16], number: u32) -> String {
    format!("{prefix}{}", base62::to_text(id, number))
}

fn read(prefix: &str, text: &str) -> Option<([u8; 16], u32)> {
    base62::parse(text.strip_prefix(prefix)?)
}

/// The same, for ids that have no number beside them.
fn bare(prefix: &str, text: &str) -> Option<[u8; 16]> {
    read(prefix, text).filter(|(_, number)| *number == 0).map(|(id, _)| id)
}

pub(super) fn application(id: TenantId) -> String {
    write(APPLICATION, id.as_bytes(), 0)
}

pub(super) fn read_application(text: &str) -> Option<TenantId> {
    bare(APPLICATION, text).map(TenantId::from_bytes)
}

pub(super) fn endpoint(id: SubscriptionId) -> String {
    write(ENDPOINT, id.as_bytes(), 0)
}

pub(super) fn read_endpoint(text: &str) -> Option<SubscriptionId> {
    bare(ENDPOINT, text).map(SubscriptionId::from_bytes)
}

pub(super) fn destination(id: SubscriptionId) -> String {
    write(DESTINATION, id.as_bytes(), 0)
}

pub(super) fn read_destination(text: &str) -> Option<SubscriptionId> {
    bare(DESTINATION, text).map(SubscriptionId::from_bytes)
}

pub(super) fn message(id: EventId) -> String {
    write(MESSAGE, id.as_bytes(), 0)
}

pub(super) fn read_message(text: &str) -> Option<EventId> {
    bare(MESSAGE, text).map(EventId::from_bytes)
}

/// The number of the attempt stands beside its delivery.
pub(super) fn attempt(delivery: DeliveryId, number: u32) -> String {
    write(ATTEMPT, delivery.as_bytes(), number)
}

pub(super) fn read_attempt(text: &str) -> Option<(DeliveryId, u32)> {
    read(ATTEMPT, text).map(|(id, number)| (DeliveryId::from_bytes(id), number))
}

/// The number beside a job says a little of whose it is, so that only few tenants must be asked.
pub(super) fn task(id: JobId, tenant: TenantId) -> String {
    write(TASK, id.as_bytes(), mark(tenant) << 1)
}

/// The job, and the mark of the tenant whose it is.
pub(super) fn read_task(text: &str) -> Option<(JobId, u32)> {
    let (id, number) = read(TASK, text)?;
    (number & 1 == 0).then(|| (JobId::from_bytes(id), number >> 1))
}

/// A little of a tenant's id: 31 bits of its random half.
pub(super) fn mark(tenant: TenantId) -> u32 {
    let bytes = tenant.as_bytes();
    u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) & 0x7fff_ffff
}

/// What somebody may call a thing of this kind: it must not look like one of our own ids.
pub(super) fn check_uid(text: &str, prefix: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > UID_BYTES_MAX || !text.chars().all(plain) {
        return Err(format!("must be 1 to {UID_BYTES_MAX} characters of A-Z a-z 0-9 - _ ."));
    }
    if text.starts_with(prefix) {
        return Err(format!("must not begin with {prefix}"));
    }
    Ok(())
}

/// A time as this API writes it.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_what_they_were() {
        let at = Timestamp::from_millis(1_790_000_000_000);
        let tenant = TenantId::new(at, 77);
        assert_eq!(read_application(&application(tenant)), Some(tenant));
        let (delivery, job) = (DeliveryId::new(at, 5), JobId::new(at, 9));
        assert_eq!(read_attempt(&attempt(delivery, 3)), Some((delivery, 3)));
        assert!(attempt(delivery, 2) < attempt(delivery, 3));
        let text = task(job, tenant);
        assert_eq!(read_task(&text), Some((job, mark(tenant))));
        assert_eq!(text.len(), "qtask_".len() + 27);
    }

    #[test]
    fn the_ids_of_one_kind_are_no_ids_of_another() {
        let id = EventId::new(Timestamp::from_millis(1), 1);
        assert_eq!(read_endpoint(&message(id)), None);
        assert_eq!(read_message(&attempt(DeliveryId::from_bytes(*id.as_bytes()), 1)), None);
        assert_eq!(read_message(&message(id)[..20]), None);
    }

    #[test]
    fn names_of_others_do_not_look_like_ids() {
        assert!(check_uid("customer-7", APPLICATION).is_ok());
        for bad in ["", "app_7", "a b", "ä", &"x".repeat(256)] {
            assert!(check_uid(bad, APPLICATION).is_err(), "{bad}");
        }
        assert!(check_uid("app_7", ENDPOINT).is_ok());
    }
}

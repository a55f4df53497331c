//! One webhook, now, once: for command lines, migrations and tests.

use posthorn_domain::{DeliveryState, EventType};

use crate::config::CallbacksConfig;
use crate::error::Error;
use crate::event::{PaymentEvent, Prepared};
use crate::retryable::{Outside, courier};

/// Sends one payment event at once, without retries, and says whether it was taken.
pub async fn send_once(config: &CallbacksConfig, event: PaymentEvent) -> Result<(), Error> {
    send(config, event, &Outside::default()).await
}

/// The same with other rules for the way out, such as which private networks are open.
pub async fn send_once_through(
    config: &CallbacksConfig,
    event: PaymentEvent,
    egress: posthorn_egress::Options,
) -> Result<(), Error> {
    send(config, event, &Outside { egress, ..Outside::default() }).await
}

async fn send(
    config: &CallbacksConfig,
    event: PaymentEvent,
    outside: &Outside,
) -> Result<(), Error> {
    let callbacks = config.check()?.ok_or(Error::NoUrl)?;
    let courier = courier(&callbacks, outside)?;
    let prepared = Prepared::payment(event, &*outside.clock);
    let event_type = EventType::new(&prepared.event_type)
        .map_err(|source| Error::Event { field: "eventType", source })?;
    let media_type = "application/json".to_owned();
    let mut work = courier.work(callbacks.topic, event_type, media_type, prepared.payload);
    let attempt = courier.attempt(&mut work).await?;
    if work.delivery.state == DeliveryState::Delivered {
        return Ok(());
    }
    let reason = attempt.map_or_else(|| "no attempt was made".to_owned(), |a| a.summary());
    Err(Error::NotDelivered(reason))
}

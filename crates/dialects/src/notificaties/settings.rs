//! The four settings of deliveries, as operators of Open Notificaties know them, and the schedule they
//! mean. They are kept as the tenant's own version of the profile, so that every abonnement follows a
//! change at once, on all nodes, and whoever prefers profiles sees the same thing.

use posthorn_domain::policy::{Backoff, Schedule};
use posthorn_domain::{Problem, ProfileName, TenantId};
use posthorn_engine::Engine;
use serde_json::{Map, Value, json};

/// The names of the settings in `notifications_config`.
pub const MAX_RETRIES: &str = "notification_delivery_max_retries";
/// See [`MAX_RETRIES`].
pub const RETRY_BACKOFF: &str = "notification_delivery_retry_backoff";
/// See [`MAX_RETRIES`].
pub const RETRY_BACKOFF_MAX: &str = "notification_delivery_retry_backoff_max";
/// See [`MAX_RETRIES`].
pub const BASE_FACTOR: &str = "notification_delivery_base_factor";

/// Names the service of this API among those the original calls; it means nothing here, where nobody
/// calls it.
const SERVICE: &str = "notifications_api_service_identifier";

/// Most retries: a schedule may have a thousand sends.
const RETRIES_MAX: u64 = 999;
/// The longest wait a schedule may have, in seconds.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;
/// What a schedule may grow by.
const FACTOR_MAX: f64 = 100.0;

/// The four settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Retries after the first send.
    pub max_retries: u32,
    /// The factor of all waits, in seconds; zero for no wait at all.
    pub retry_backoff: f64,
    /// The longest wait, in seconds.
    pub retry_backoff_max: f64,
    /// Each wait is this many times the one before.
    pub base_factor: f64,
}

/// Changes of the settings; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// See [`Settings`].
    pub max_retries: Option<u32>,
    /// See [`Settings`].
    pub retry_backoff: Option<f64>,
    /// See [`Settings`].
    pub retry_backoff_max: Option<f64>,
    /// See [`Settings`].
    pub base_factor: Option<f64>,
}

impl SettingsChange {
    /// Reads the settings by their names. The backoff is a number, or `true` for 1, or `false` for
    /// none. `Err` says which setting is wrong, and how it should be.
    pub fn read(document: &Map<String, Value>) -> Result<Self, Problem> {
        let mut change = Self::default();
        for (name, value) in document {
            let within = |least: f64, most: f64| match value.as_f64() {
                Some(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(format!("{name} must be a number from {least} to {most}")),
            };
            match name.as_str() {
                MAX_RETRIES => match value.as_u64() {
                    Some(number) if number <= RETRIES_MAX => {
                        change.max_retries = u32::try_from(number).ok();
                    }
                    _ => {
                        let problem = format!("{name} must be a whole number up to {RETRIES_MAX}");
                        return Err(problem.into());
                    }
                },
                RETRY_BACKOFF => {
                    change.retry_backoff = Some(match value {
                        Value::Bool(on) => f64::from(u8::from(*on)),
                        _ => within(0.0, SECONDS_MAX).map_err(|e| format!("{e}, true or false"))?,
                    });
                }
                RETRY_BACKOFF_MAX => change.retry_backoff_max = Some(within(1.0, SECONDS_MAX)?),
                BASE_FACTOR => change.base_factor = Some(within(1.0, FACTOR_MAX)?),
                SERVICE if value.is_string() || value.is_null() => {}
                SERVICE => return Err(format!("{name} must be a text").into()),
                _ => {
                    let known = [MAX_RETRIES, RETRY_BACKOFF, RETRY_BACKOFF_MAX, BASE_FACTOR];
                    let known = known.join(", ");
                    return Err(format!("there is no setting {name}; there are {known}").into());
                }
            }
        }
        Ok(change)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Settings {
    /// The settings a schedule comes from; `None` when it comes from none.
    pub fn of(schedule: &Schedule) -> Option<Self> {
        let max_retries = schedule.max_attempts?.checked_sub(1)?;
        let seconds = |span: posthorn_domain::Span| span.as_millis() as f64 / 1_000.0;
        match &schedule.backoff {
            Backoff::Exponential { initial, factor, cap } => Some(Self {
                max_retries,
                retry_backoff: seconds(*initial),
                retry_backoff_max: seconds(*cap),
                base_factor: *factor,
            }),
            // How no wait at all is written down.
            Backoff::Fixed { wait } if wait.as_millis() == 0 => {
                Some(Self { max_retries, retry_backoff: 0.0, ..Self::default() })
            }
            _ => None,
        }
    }

    /// These settings with a change.
    #[must_use]
    pub fn with(self, change: &SettingsChange) -> Self {
        Self {
            max_retries: change.max_retries.unwrap_or(self.max_retries),
            retry_backoff: change.retry_backoff.unwrap_or(self.retry_backoff),
            retry_backoff_max: change.retry_backoff_max.unwrap_or(self.retry_backoff_max),
            base_factor: change.base_factor.unwrap_or(self.base_factor),
        }
    }

    /// What they change in a policy.
    pub fn patch(&self) -> Value {
        let span = |seconds: f64| format!("{}ms", (seconds * 1_000.0).round() as u64);
        let backoff = if self.retry_backoff == 0.0 {
            json!({"fixed": {"wait": "0ms"}})
        } else {
            json!({"exponential": {
                "initial": span(self.retry_backoff.min(self.retry_backoff_max)),
                "factor": self.base_factor,
                "cap": span(self.retry_backoff_max),
            }})
        };
        json!({"schedule": {"backoff": backoff, "max_attempts": self.max_retries + 1}})
    }

    /// By their names.
    pub fn view(&self) -> Value {
        json!({
            MAX_RETRIES: self.max_retries,
            RETRY_BACKOFF: self.retry_backoff,
            RETRY_BACKOFF_MAX: self.retry_backoff_max,
            BASE_FACTOR: self.base_factor,
        })
    }

    /// What a profile of a tenant is to be changed to for these settings: what was changed in it
    /// before stays, but for the waits and the number of sends.
    pub fn patch_over(&self, present: Option<&Value>) -> Value {
        let mut whole = match present {
            Some(Value::Object(fields)) => fields.clone(),
            _ => Map::new(),
        };
        let patch = self.patch();
        let schedule = whole.entry("schedule").or_insert_with(|| json!({}));
        if !schedule.is_object() {
            *schedule = json!({});
        }
        for name in ["backoff", "max_attempts"] {
            schedule[name] = patch["schedule"][name].clone();
        }
        Value::Object(whole)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_retries: 7, retry_backoff: 25.0, retry_backoff_max: 52_000.0, base_factor: 4.0 }
    }
}

/// Changes the settings of a tenant, and says whether they were others. Nothing is written when they are so already, or when nothing is to
/// be changed. A profile whose waits come from no settings is left alone: somebody wants them so.
pub(super) async fn change(
    engine: &Engine,
    tenant: TenantId,
    profile: &ProfileName,
    change: &SettingsChange,
) -> Result<bool, Problem> {
    if change.is_empty() {
        return Ok(false);
    }
    let said = |e: posthorn_engine::Error| e.to_string();
    let present = engine.one_profile(tenant, profile).map_err(said)?;
    let policy = present.policy.as_ref().map_err(Problem::clone)?;
    let Some(old) = Settings::of(&policy.schedule) else {
        return Err(format!(
            "the retry waits of the profile `{profile}` do not match the four settings; remove \
             the settings, or set dialects.notificaties.profile to another profile"
        )
        .into());
    };
    let new = old.with(change);
    // Not the settings are compared: several of them may mean the same schedule.
    let meant = policy.patched(&new.patch()).map_err(|e| e.to_string())?;
    if meant.schedule == policy.schedule {
        return Ok(false);
    }
    let own = present.own.as_deref();
    let patch = new.patch_over(own.map(|own| &own.policy));
    let base = own.map(|own| own.base.clone());
    engine.put_profile(tenant, profile.clone(), base, patch).await.map_err(said)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use posthorn_domain::policy::profiles;

    use super::*;

    fn waits(settings: &Settings) -> Vec<u64> {
        let policy = profiles::notificaties().patched(&settings.patch()).expect("a policy");
        assert_eq!(policy.schedule.max_attempts, Some(settings.max_retries + 1));
        let wait = |done| policy.schedule.backoff.wait(done).as_millis() / 1_000;
        (1..=settings.max_retries).map(wait).collect()
    }

    #[test]
    fn the_defaults_are_those_of_the_profile_and_of_the_original() {
        let shipped = profiles::notificaties().schedule;
        assert_eq!(Settings::of(&shipped), Some(Settings::default()));
        assert_eq!(waits(&Settings::default()), [25, 100, 400, 1_600, 6_400, 25_600, 52_000]);
    }

    #[test]
    fn other_bases_and_factors_give_the_tables_of_the_original() {
        let with = |base_factor| Settings { base_factor, ..Settings::default() };
        assert_eq!(waits(&with(2.0)), [25, 50, 100, 200, 400, 800, 1_600]);
        assert_eq!(waits(&with(3.0)), [25, 75, 225, 675, 2_025, 6_075, 18_225]);
        let read = |value: Value| {
            let document = Map::from_iter([(RETRY_BACKOFF.to_owned(), value)]);
            Settings::default().with(&SettingsChange::read(&document).expect("read"))
        };
        assert_eq!(waits(&read(json!(true))), [1, 4, 16, 64, 256, 1_024, 4_096]);
        assert_eq!(waits(&read(json!(1))), waits(&read(json!(true))));
        assert_eq!(waits(&read(json!(false))), [0; 7]);
        assert_eq!(waits(&read(json!(0))), [0; 7]);
        assert_eq!(
            waits(&read(json!(60_000))),
            [52_000; 7],
            "the longest wait holds from the start"
        );
        let once = Settings { max_retries: 0, ..Settings::default() };
        assert!(waits(&once).is_empty());
    }

    #[test]
    fn settings_come_back_from_the_schedule_they_became() {
        for settings in [
            Settings::default(),
            Settings {
                max_retries: 4,
                retry_backoff: 0.5,
                retry_backoff_max: 10.0,
                base_factor: 1.5,
            },
            Settings { retry_backoff: 0.0, ..Settings::default() },
        ] {
            let policy = profiles::notificaties().patched(&settings.patch()).expect("a policy");
            assert_eq!(Settings::of(&policy.schedule), Some(settings));
        }
        assert_eq!(Settings::of(&profiles::pca_hub().schedule), None);
    }

    #[test]
    fn wrong_settings_are_named() {
        #[track_caller]
        fn check(name: &str, value: Value, says: &str) {
            let document = Map::from_iter([(name.to_owned(), value)]);
            let problem = SettingsChange::read(&document).expect_err("refused").to_string();
            assert!(problem.contains(name) && problem.contains(says), "{problem}");
        }
        check(MAX_RETRIES, json!(-1), "up to 999");
        check(MAX_RETRIES, json!(1_000), "up to 999");
        check(MAX_RETRIES, json!("7"), "whole number");
        check(RETRY_BACKOFF, json!(-25), "true or false");
        check(RETRY_BACKOFF, json!(null), "true or false");
        check(RETRY_BACKOFF_MAX, json!(0), "from 1");
        check(BASE_FACTOR, json!(0.5), "from 1");
        check("max_retries", json!(7), MAX_RETRIES);
    }

    #[test]
    fn what_else_was_changed_in_the_profile_stays() {
        let present = json!({"limits": {"concurrency": 3}, "schedule": {"jitter": "none"}});
        let patch = Settings::default().patch_over(Some(&present));
        assert_eq!(patch["limits"], present["limits"]);
        assert_eq!(patch["schedule"]["jitter"], "none");
        assert_eq!(patch["schedule"]["max_attempts"], 8);
    }
}

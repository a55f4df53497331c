//! What operators do with the API from outside: applying a setup file while everything runs, and sending messages
//! again. Who they are is asked by the native API, which this is served with: it is no part of the standard.

use posthorn_domain::{ProfileName, TenantId};
use posthorn_engine::{Engine, NewReplay};
use serde_json::{Map, Value, json};

use super::resend;
use super::settings::{self, Settings, SettingsChange};
use super::setup::Setup;
use crate::StartError;

/// Applies setup files, shows and changes settings, and reads what is to be sent again.
#[derive(Clone)]
pub struct Management {
    pub(super) engine: Engine,
    pub(super) tenant: TenantId,
    pub(super) profile: ProfileName,
}

impl Management {
    /// Applies a file, in which values stand for themselves, with an engine that acts for whoever sends it. The answer
    /// says what it changed.
    pub async fn apply(&self, engine: &Engine, document: &Value) -> Result<Value, StartError> {
        let setup = Setup::read(document, &|_| None)
            .map_err(|problems| StartError::Setup(problems.join("; ")))?;
        let applied = setup.apply(engine, self.tenant, &self.profile).await?;
        let mut ignored = setup.ignored;
        if setup.authorizations.is_some() {
            ignored.push("autorisaties_api".to_owned());
        }
        Ok(json!({
            "changed": applied.changed, "unchanged": applied.unchanged, "ignored": ignored,
        }))
    }

    /// The four settings of deliveries, changed first where a document says so. `Err` says what is wrong.
    pub async fn settings(
        &self,
        engine: &Engine,
        document: Option<&Map<String, Value>>,
    ) -> Result<Value, String> {
        if let Some(document) = document {
            let change = SettingsChange::read(document)?;
            settings::change(engine, self.tenant, &self.profile, &change).await?;
        }
        let present = engine.one_profile(self.tenant, &self.profile).map_err(|e| e.to_string())?;
        let schedule = present.policy.as_ref().ok().map(|policy| &policy.schedule);
        let settings = schedule.and_then(Settings::of).ok_or_else(|| {
            let profile = &self.profile;
            format!("the retry waits of the profile `{profile}` do not match the four settings")
        })?;
        Ok(settings.view())
    }

    /// The tenant that everything of this API belongs to.
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Reads which messages are to be sent again; otherwise which fields are wrong, and why.
    pub fn resend(
        &self,
        document: &Value,
        created_by: String,
    ) -> Result<NewReplay, Vec<(String, String)>> {
        resend::read(&self.engine, self.tenant, document, created_by)
            .map_err(|faults| faults.into_iter().map(|fault| (fault.name, fault.reason)).collect())
    }
}

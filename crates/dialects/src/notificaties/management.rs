//! What operators do with the API from outside: applying a setup file while everything runs, and sending messages
//! again. Who they are is asked by the native API, which this is served with: it is no part of the standard.

use posthorn_domain::{ProfileName, TenantId};
use posthorn_engine::{Engine, NewReplay};
use serde_json::{Value, json};

use super::resend;
use super::setup::Setup;
use crate::StartError;

/// Applies setup files, and reads what is to be sent again.
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

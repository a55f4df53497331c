//! Setup files of the Notificaties API, applied while everything runs. What a file means is the dialect's
//! affair; here is only who may apply one, and the form of the answer.

use serde_json::Value;

use crate::SetupRefusal;
use crate::call::{Answer, Call};
use crate::codes;
use crate::problem::Problem;
use crate::respond;

/// `PUT /v1/notificaties/setup`.
pub(crate) async fn setup(mut call: Call) -> Answer {
    let document: Value = call.json().await?;
    let apply = call.api.options.setup.clone();
    let off = "the Notificaties API is off; operators turn it on with dialects.notificaties";
    let apply = apply.ok_or_else(|| Problem::new(codes::NOT_FOUND, off))?;
    let applied = apply(document).await.map_err(|refusal| match refusal {
        SetupRefusal::Invalid(problem) => Problem::field("setup", problem),
        SetupRefusal::Engine(error) => error.into(),
    })?;
    respond::ok(&applied)
}

//! What the commands of all nouns share: where a noun is in the API, what a table shows of it, what is
//! shown of one, and the verbs that every noun has.

use http::Method;
use serde_json::Value;

use super::{Context, Limit};
use crate::client::{Call, segment};

/// A noun of the API.
pub(super) struct Noun {
    /// Where it is, below `/v1/`.
    pub(super) path: &'static str,
    /// Its table, as `HEADING field, HEADING field`.
    pub(super) columns: &'static str,
    /// What is shown of one, as `field field`.
    pub(super) fields: &'static str,
}

impl Noun {
    fn all(&self) -> String {
        format!("/v1/{}", self.path)
    }

    /// Where one is.
    pub(super) fn at(&self, id: &str) -> String {
        format!("/v1/{}/{}", self.path, segment(id))
    }

    /// A list of those that fit, to be shown.
    pub(super) async fn find(
        &self,
        context: &Context,
        query: &[(&str, String)],
        limit: Limit,
    ) -> anyhow::Result<Value> {
        context.client.list(&self.all(), query, limit.items()).await
    }

    /// Shows a list.
    pub(super) async fn list(&self, context: &Context, limit: Limit) -> anyhow::Result<()> {
        context.show_list(&self.find(context, &[], limit).await?, self.columns)
    }

    /// Shows one.
    pub(super) async fn show(&self, context: &Context, id: &str) -> anyhow::Result<()> {
        context.show_one(&context.client.get(self.at(id)).await?, self.fields)
    }

    /// Creates one.
    pub(super) async fn create(&self, context: &Context, body: &Value) -> anyhow::Result<()> {
        context.show_one(&context.client.post(self.all(), body).await?, self.fields)
    }

    /// Creates or changes the one with a name.
    pub(super) async fn put(
        &self,
        context: &Context,
        id: &str,
        body: &Value,
    ) -> anyhow::Result<()> {
        let call = Call::new(Method::PUT, self.at(id)).body(body.to_string());
        context.show_one(&context.client.call(call).await?.json()?, self.fields)
    }

    /// Has the server do something with one, and returns what it says.
    pub(super) async fn act(
        &self,
        context: &Context,
        id: &str,
        verb: &str,
    ) -> anyhow::Result<Value> {
        let call = Call::new(Method::POST, format!("{}/{verb}", self.at(id)));
        context.client.call(call).await?.json()
    }

    /// Removes one, and says so in these words.
    pub(super) async fn delete(
        &self,
        context: &Context,
        id: &str,
        said: &str,
    ) -> anyhow::Result<()> {
        context.client.call(Call::new(Method::DELETE, self.at(id))).await?;
        context.done(format_args!("{said} {id}"));
        Ok(())
    }
}

/// A body of what was given: what is null is left out.
pub(super) fn given(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

/// Which one.
#[derive(clap::Args, Clone, Debug)]
pub struct Id {
    /// Its id
    pub id: String,
}

/// Which one, by name.
#[derive(clap::Args, Clone, Debug)]
pub struct Name {
    /// Its name
    pub name: String,
}

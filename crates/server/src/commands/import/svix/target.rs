//! The server that everything goes to: this Posthorn, over its native API.

use std::collections::HashMap;

use http::{HeaderName, Method, StatusCode};
use posthorn_dialects::svix::moving::{self, Change, Left, Moved};
use serde_json::{Value, json};

use super::super::patience;
use super::Args;
use crate::client::{Access, Call, Client, Reply, segment, with_query};
use crate::exit::{self, Code, Failure};

const TENANT: HeaderName = HeaderName::from_static("posthorn-tenant");
/// Items of a page.
const PAGE: &str = "200";
/// All tenants of a realm.
const ALL: usize = usize::MAX;

/// What became of a thing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is new here.
    Made,
    /// It is here and the same.
    There,
    /// It was here and is the same now.
    Changed,
    /// It is here, and these fields differ.
    Different(String),
}

/// Why a thing was not written.
#[derive(Debug)]
pub(super) enum Trouble {
    /// This one cannot be; others may.
    Refused(Problem),
    /// Nothing else can be written either.
    Fatal(anyhow::Error),
}

/// What the server says about a thing that it refuses.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    field: String,
    pub(super) detail: String,
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Fatal(error)
    }
}

/// This server.
pub(super) struct Target {
    client: Client,
    realm: String,
    update: bool,
    dry_run: bool,
    /// Tenants that were there at the start, by the id they had elsewhere, and by the name their maker gave them.
    by_former: HashMap<String, Value>,
    by_uid: HashMap<String, Value>,
}

impl Target {
    /// Looks at what is there.
    pub(super) async fn open(access: &Access, args: &Args) -> anyhow::Result<Self> {
        // Which tenant is meant is said with each call.
        let client = Client::new(&Access { tenant: None, ..access.clone() })?;
        let realm = args.realm.to_string();
        let mut target = Self {
            client,
            realm: realm.clone(),
            update: args.update,
            dry_run: args.dry_run,
            by_former: HashMap::new(),
            by_uid: HashMap::new(),
        };
        let place = format!("/v1/realms/{}", segment(&realm));
        let reply = patience::exchange(&target.client, &Call::new(Method::GET, place)).await?;
        if reply.status == StatusCode::NOT_FOUND {
            let failure = Failure::new(Code::Usage, format!("there is no realm {realm}"));
            return Err(failure.hint(format!("posthorn realms put {realm}")).into());
        }
        target.taken(&reply)?;
        let query = [("realm", realm)];
        let all = target.client.list("/v1/tenants", &query, ALL).await?;
        let all = all.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        all.into_iter().for_each(|tenant| target.remember(tenant));
        Ok(target)
    }

    fn remember(&mut self, tenant: Value) {
        if tenant.get("deleting_since").is_some() {
            return;
        }
        if let Some(former) = moving::former_id(&tenant) {
            self.by_former.insert(former.to_owned(), tenant.clone());
        }
        if let Some(uid) = tenant.get("external_id").and_then(Value::as_str) {
            self.by_uid.insert(uid.to_owned(), tenant);
        }
    }

    fn taken(&self, reply: &Reply) -> anyhow::Result<Value> {
        match reply.status.is_success() {
            true => reply.json(),
            false => Err(self.client.refusal(reply).into()),
        }
    }

    /// Makes a call that may be repeated.
    async fn write(&self, call: Call) -> Result<Value, Trouble> {
        let reply = patience::exchange(&self.client, &call).await?;
        self.sort(&reply)
    }

    /// Tells what only this thing is refused for from what ends everything.
    fn sort(&self, reply: &Reply) -> Result<Value, Trouble> {
        let own = [400, 404, 409, 413, 422];
        if !own.contains(&reply.status.as_u16()) {
            return Ok(self.taken(reply)?);
        }
        let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = text("field").to_owned();
        let detail = self.client.refusal(reply).message;
        Err(Trouble::Refused(Problem { status: reply.status, field, detail }))
    }

    /// Creates something that must not be created twice: after an answer that got lost it is looked for. `None` when somebody else
    /// may have made it.
    async fn create(&self, call: Call, tries: u32) -> Result<Option<Value>, Trouble> {
        match self.client.exchange(call).await {
            Ok(reply) if patience::is_passing(reply.status) && tries + 1 < patience::TRIES => {
                patience::pause(tries, Some(&reply)).await;
                Ok(None)
            }
            Ok(reply) => self.sort(&reply).map(Some),
            Err(error) if tries + 1 < patience::TRIES && exit::code_of(&error) != Code::Usage => {
                patience::pause(tries, None).await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An event type, and what of it has no counterpart.
    pub(super) async fn event_type(&self, moved: Moved) -> Result<(Outcome, Vec<Left>), Trouble> {
        let query = [("realm", self.realm.clone())];
        let place = with_query(&format!("/v1/event-types/{}", segment(&moved.id)), &query);
        let found = match self.write(Call::new(Method::GET, place.clone())).await {
            Ok(there) => Some(there),
            Err(Trouble::Refused(problem)) if problem.status == StatusCode::NOT_FOUND => None,
            Err(trouble) => return Err(trouble),
        };
        let outcome = match &found {
            None => Outcome::Made,
            Some(there) if !moving::event_type_differs(there, &moved) => Outcome::There,
            Some(_) if self.update => Outcome::Changed,
            Some(_) => Outcome::Different("what is said about it".to_owned()),
        };
        if self.dry_run || matches!(outcome, Outcome::There | Outcome::Different(_)) {
            return Ok((outcome, moved.left));
        }
        let put =
            |moved: &Moved| Call::new(Method::PUT, place.clone()).body(moved.body.to_string());
        match self.write(put(&moved)).await {
            Ok(_) => Ok((outcome, moved.left)),
            // What publishes are checked against is bounded here; the type itself is not at fault.
            Err(Trouble::Refused(problem)) if problem.field.starts_with("schemas") => {
                let fewer = moving::without_schemas(&moved, &problem.detail);
                self.write(put(&fewer)).await?;
                Ok((outcome, fewer.left))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// An application, and the id of its tenant; none when it would be new and this is a dry run.
    pub(super) async fn application(
        &self,
        moved: &Moved,
    ) -> Result<(Outcome, Option<String>), Trouble> {
        let uid = moved.body.get("external_id").and_then(Value::as_str);
        let known = self.by_former.get(&moved.id);
        let known = known.or_else(|| self.by_uid.get(uid?)).cloned();
        if let Some(there) = known {
            return self.known_application(&there, moved).await;
        }
        if self.dry_run {
            return Ok((Outcome::Made, None));
        }
        for tries in 0..patience::TRIES {
            let call = Call::new(Method::POST, "/v1/tenants").body(moved.body.to_string());
            let refused = match self.create(call, tries).await {
                Ok(Some(made)) => return Ok((Outcome::Made, Some(id_of(&made)?))),
                Ok(None) => None,
                Err(Trouble::Refused(problem)) if problem.status == StatusCode::CONFLICT => {
                    Some(problem)
                }
                Err(trouble) => return Err(trouble),
            };
            if let Some(there) = self.look_again(&moved.body).await? {
                let (outcome, id) = self.known_application(&there, moved).await?;
                // Nobody else makes a tenant of this name: it was this call, or one of its repeats.
                let made = refused.is_none() && outcome == Outcome::There;
                return Ok((if made { Outcome::Made } else { outcome }, id));
            }
            if let Some(problem) = refused {
                return Err(Trouble::Refused(problem));
            }
        }
        Err(self.lost().into())
    }

    fn lost(&self) -> anyhow::Error {
        let message = format!("{} does not say what it did, again and again", self.client.server());
        Failure::new(Code::Unavailable, message).into()
    }

    /// A tenant that came into being meanwhile.
    async fn look_again(&self, body: &Value) -> Result<Option<Value>, Trouble> {
        let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
        let place = format!("/v1/tenants/{}", segment(name));
        match self.write(Call::new(Method::GET, place)).await {
            Ok(there) => return Ok(Some(there)),
            Err(Trouble::Refused(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        let Some(uid) = body.get("external_id").and_then(Value::as_str) else { return Ok(None) };
        let query = [("realm", self.realm.clone()), ("external_id", uid.to_owned())];
        let call = Call::new(Method::GET, with_query("/v1/tenants", &query));
        Ok(self.write(call).await?.pointer("/items/0").cloned())
    }

    async fn known_application(
        &self,
        there: &Value,
        moved: &Moved,
    ) -> Result<(Outcome, Option<String>), Trouble> {
        let id = id_of(there)?;
        check_former(there, moved)?;
        let place = format!("/v1/tenants/{}", segment(&id));
        let change = moving::application_change(there, moved);
        let outcome = self.change(&place, None, there, moved, change).await?;
        Ok((outcome, Some(id)))
    }

    /// Changes what is there, as far as that is wanted.
    async fn change(
        &self,
        place: &str,
        tenant: Option<&str>,
        there: &Value,
        moved: &Moved,
        change: Change,
    ) -> Result<Outcome, Trouble> {
        if change.is_empty() {
            return Ok(Outcome::There);
        }
        let patch = |body: &Value| {
            for_tenant(Call::new(Method::PATCH, place).body(body.to_string()), tenant)
        };
        if self.update {
            if !self.dry_run {
                if let Some(secret) = &change.secret {
                    // Both sign for a while, as on the server that it comes from.
                    let body = json!({ "secret": secret }).to_string();
                    let call = Call::new(Method::POST, format!("{place}/rotate-secret")).body(body);
                    self.write(for_tenant(call, tenant)).await?;
                }
                self.write(patch(&change.patch)).await?;
            }
            return Ok(Outcome::Changed);
        }
        let adoption = moving::adoption(there, moved);
        let mut fields: Vec<&str> =
            change.patch.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        if change.secret.is_some() {
            fields.push("secret");
        }
        if let Some(body) = &adoption {
            if !self.dry_run {
                self.write(patch(body)).await?;
            }
            fields.retain(|name| *name != "labels");
        }
        // Which secret it was is no difference of its own.
        if change.secret.is_some() {
            fields.retain(|name| *name != "labels");
        }
        match (fields.is_empty(), adoption) {
            (true, Some(_)) => Ok(Outcome::Changed),
            _ => Ok(Outcome::Different(fields.join(", "))),
        }
    }

    /// All subscriptions of a tenant.
    pub(super) async fn subscriptions(&self, tenant: &str) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE.to_owned())];
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let call = Call::new(Method::GET, with_query("/v1/subscriptions", &query));
            let call = for_tenant(call, Some(tenant));
            let mut page = self.taken(&patience::exchange(&self.client, &call).await?)?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                all.extend(items);
            }
            cursor = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// An endpoint, and what was there before it, if anything.
    pub(super) async fn endpoint(
        &self,
        tenant: Option<&str>,
        there: &[Value],
        moved: &Moved,
    ) -> Result<(Outcome, Option<Value>), Trouble> {
        if let Some(own) = find(there, moved) {
            return self.known_endpoint(tenant, own, moved).await;
        }
        let Some(tenant) = tenant.filter(|_| !self.dry_run) else {
            return Ok((Outcome::Made, None));
        };
        for tries in 0..patience::TRIES {
            let call = Call::new(Method::POST, "/v1/subscriptions").body(moved.body.to_string());
            if self.create(for_tenant(call, Some(tenant)), tries).await?.is_some() {
                return Ok((Outcome::Made, None));
            }
            // The answer got lost, or there was none.
            if find(&self.subscriptions(tenant).await?, moved).is_some() {
                return Ok((Outcome::Made, None));
            }
        }
        Err(self.lost().into())
    }

    async fn known_endpoint(
        &self,
        tenant: Option<&str>,
        there: &Value,
        moved: &Moved,
    ) -> Result<(Outcome, Option<Value>), Trouble> {
        check_former(there, moved)?;
        let place = format!("/v1/subscriptions/{}", segment(&id_of(there)?));
        let change = moving::endpoint_change(there, moved);
        let outcome = self.change(&place, tenant, there, moved, change).await?;
        Ok((outcome, Some(there.clone())))
    }

    /// What to say where clients of the former server would find nobody.
    pub(super) async fn dialect_is_off(&self) -> Option<String> {
        let call = Call::new(Method::GET, "/api/v1/health/ping");
        let reply = self.client.exchange(call).await.ok()?;
        let off = reply.status != StatusCode::NO_CONTENT;
        off.then(|| {
            format!(
                "{} has no Svix API at /api/v1: set dialects.svix.enabled in its configuration, so that \
                 your clients find it",
                self.client.server()
            )
        })
    }
}

fn for_tenant(call: Call, tenant: Option<&str>) -> Call {
    match tenant {
        Some(tenant) => call.header(TENANT, tenant),
        None => call,
    }
}

fn id_of(thing: &Value) -> anyhow::Result<String> {
    let id = thing.get("id").and_then(Value::as_str).map(str::to_owned);
    id.ok_or_else(|| Failure::new(Code::Failure, "the server's answer has no id").into())
}

/// The one that was taken over before, or one of the same uid.
fn find<'a>(there: &'a [Value], moved: &Moved) -> Option<&'a Value> {
    let former = there.iter().find(|own| moving::former_id(own) == Some(&*moved.id));
    former.or_else(|| {
        let uid = moved.body.get("name")?;
        there.iter().find(|own| own.get("name") == Some(uid))
    })
}

/// Two that have the same uid and came from different places are not the same.
fn check_former(there: &Value, moved: &Moved) -> Result<(), Trouble> {
    match moving::former_id(there) {
        Some(former) if former != moved.id => {
            let detail = format!("its uid belongs to another one here, which was {former}");
            let status = StatusCode::CONFLICT;
            Err(Trouble::Refused(Problem { status, field: String::new(), detail }))
        }
        _ => Ok(()),
    }
}

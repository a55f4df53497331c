//! Names for the ids that lists have: people know their subscriptions and tenants by name and URL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Context;
use crate::client::segment;
use crate::exit::Failure;
use crate::terminal;

/// Up to so many are asked for one by one; of more, all there are.
const ONE_BY_ONE_MAX: usize = 10;
/// So many are looked through for a list.
const LOOKED_THROUGH_MAX: usize = 2_000;

/// Puts the name of each subscription, or its URL, into the field `to`, where a table finds it.
pub(super) async fn add_receivers(context: &Context, items: &mut [Value]) -> anyhow::Result<()> {
    let ids: BTreeSet<String> =
        items.iter().map(|item| terminal::cell(item, "subscription")).collect();
    let mut names = BTreeMap::new();
    if ids.len() <= ONE_BY_ONE_MAX {
        for id in &ids {
            let path = format!("/v1/subscriptions/{}", segment(id));
            match context.client.get(path).await {
                Ok(subscription) => drop(names.insert(id.clone(), receiver(&subscription))),
                // One that was deleted keeps its id.
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
    } else {
        let list = context.client.list("/v1/subscriptions", &[], LOOKED_THROUGH_MAX).await?;
        for subscription in list.get("items").and_then(Value::as_array).into_iter().flatten() {
            names.insert(terminal::cell(subscription, "id"), receiver(subscription));
        }
    }
    for item in items {
        let id = terminal::cell(item, "subscription");
        item["to"] = Value::String(names.get(&id).cloned().unwrap_or(id));
    }
    Ok(())
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| failure.problem.as_deref() == Some("not_found"))
}

/// What people call a subscription: its name and where it leads.
fn receiver(subscription: &Value) -> String {
    let leads = match subscription.get("url") {
        Some(url) => terminal::plain(url),
        None => terminal::cell(subscription, "destination.type"),
    };
    match subscription.get("name").and_then(Value::as_str) {
        Some(name) => format!("{name} {leads}"),
        None => leads,
    }
}

/// Puts the name of each tenant where its id is.
pub(super) async fn name_tenants(context: &Context, items: &mut [Value]) -> anyhow::Result<()> {
    let list = context.client.list("/v1/tenants", &[], LOOKED_THROUGH_MAX).await?;
    let tenants = list.get("items").and_then(Value::as_array).into_iter().flatten();
    let names: BTreeMap<String, Value> =
        tenants.map(|tenant| (terminal::cell(tenant, "id"), tenant["name"].clone())).collect();
    for item in items {
        if let Some(name) = names.get(&terminal::cell(item, "tenant")) {
            item["tenant"] = name.clone();
        }
    }
    Ok(())
}

/// The items of a list, to be changed.
pub(super) fn items(list: &mut Value) -> &mut [Value] {
    list.get_mut("items").and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

//! EFGS: the callbacks of each country.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use http::StatusCode;

use super::Answer;
use super::systems::{self, Row};
use crate::frame::{Frame, Place, home};
use crate::visit::{Visit, page};

struct Callback {
    row: Row,
    id: String,
}

#[derive(Template)]
#[template(path = "efgs.html")]
struct EfgsPage {
    frame: Frame,
    base: String,
    counts: Vec<(&'static str, String)>,
    countries: Vec<(String, Vec<Callback>)>,
    more: bool,
}

/// `GET …/efgs`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let tenant = systems::check(&visit, Place::Efgs)?;
    let (all, more) = systems::subscriptions(&visit).await?;
    let mut countries: BTreeMap<String, Vec<Callback>> = BTreeMap::new();
    for given in &all {
        let Some(country) = systems::label(&visit, given, "country") else { continue };
        let id = systems::label(&visit, given, "callbackId");
        let row = Row::new(given);
        let id = id.unwrap_or_else(|| row.name.clone());
        countries.entry(country).or_default().push(Callback { row, id });
    }
    let html = EfgsPage {
        frame: Frame::new(&visit, Place::Efgs, "EFGS callbacks").await,
        base: home(&tenant),
        counts: systems::counts(&visit).await?,
        countries: countries.into_iter().collect(),
        more,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

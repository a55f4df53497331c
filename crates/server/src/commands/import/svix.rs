//! `posthorn import svix`: from a running Svix server into this one.
//!
//! Event types come first, then applications, several at a time, each with its endpoints. Nothing is kept about how far it got:
//! everything that was taken over has its former id as a label and is found by it, so that whoever runs it again goes on. What
//! becomes of what is decided in `posthorn_dialects::svix::moving`.

mod report;
mod source;
mod target;

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use indicatif::ProgressBar;
use posthorn_dialects::svix::moving::{self, Endpoint};
use posthorn_domain::{ProfileName, RealmName, TopicName};
use serde_json::{Value, json};

use crate::client::{Access, segment};
use crate::config::values::SecretRef;
use crate::exit::{Code, Failure};
use crate::terminal;
use report::{Kind, Report};
use source::Source;
use target::{Outcome, Target, Trouble};

/// Applications that are taken over at a time: what takes long is the way to the other server and back.
const AT_ONCE: usize = 8;

/// Which server, and what to do.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The address of the Svix server
    #[arg(long, value_name = "URL")]
    from: String,
    /// A token of its organisation (environment); env:NAME or file:PATH to read it from there
    #[arg(long, env = "SVIX_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// The realm that everything comes into; it must exist
    #[arg(long, value_name = "NAME", default_value = "default")]
    realm: RealmName,
    /// The topic of all messages (dialects.svix.topic)
    #[arg(long, value_name = "NAME", default_value = "messages")]
    topic: TopicName,
    /// The profile of all endpoints (dialects.svix.profile)
    #[arg(long, value_name = "NAME", default_value = "svix")]
    profile: ProfileName,
    /// Also change what is there already and differs; changes that were made here are lost
    #[arg(long)]
    update: bool,
    /// Only read and count; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub(super) async fn run(access: &Access, json: bool, args: &Args) -> anyhow::Result<()> {
    let source = Source::new(&args.from, &token(&args.token)?, access)?;
    let target = Target::open(access, args).await?;
    let mut report = Report::new(args.dry_run);
    let bar = terminal::progress(0, if args.dry_run { "counting" } else { "importing" });
    let done = whole(&source, &target, args, &mut report, &bar).await;
    bar.finish_and_clear();
    report.complete = done.is_ok();
    // Nothing is said of nothing: the server was not reached, or did not know the token.
    if done.is_ok() || json || !report.is_empty() {
        report.show(json)?;
    }
    if done.is_err() && !report.is_empty() {
        terminal::note("it was stopped before its end; run the same command again to go on");
    }
    done?;
    if let Some(note) = target.dialect_is_off().await {
        terminal::note(note);
    }
    match report.skipped() {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Failure, "1 thing could not be taken over").into()),
        more => {
            Err(Failure::new(Code::Failure, format!("{more} things could not be taken over"))
                .into())
        }
    }
}

/// The token itself, wherever it is kept.
fn token(text: &str) -> anyhow::Result<String> {
    let Some(place) = SecretRef::parse(text) else { return Ok(text.trim().to_owned()) };
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let env = env.collect();
    let token = place.resolve(&env).map_err(|problem| {
        Failure::new(Code::Usage, format!("the token cannot be read: {problem}"))
    })?;
    Ok(token.trim().to_owned())
}

async fn whole(
    source: &Source,
    target: &Target,
    args: &Args,
    report: &mut Report,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let mut types = source.event_types();
    while let Some(page) = types.next(source).await? {
        bar.inc_length(page.len() as u64);
        for thing in &page {
            report.add(event_type(target, thing).await?);
            bar.inc(1);
        }
    }
    let mut applications = source.applications();
    while let Some(page) = applications.next(source).await? {
        bar.inc_length(page.len() as u64);
        let over = &AtomicBool::new(false);
        let all = page.iter().map(|thing| async move {
            // What was begun when another one failed is still ended and counted; nothing else begins.
            match over.load(Ordering::Relaxed) {
                true => (Report::default(), Ok(())),
                false => application(source, target, args, thing).await,
            }
        });
        let mut all = futures_util::stream::iter(all).buffer_unordered(AT_ONCE);
        let mut failed = None;
        while let Some((part, done)) = all.next().await {
            report.add(part);
            bar.inc(1);
            if let Err(error) = done {
                over.store(true, Ordering::Relaxed);
                failed.get_or_insert(error);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

async fn event_type(target: &Target, thing: &Value) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let name = thing.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
    let about = Kind::EventType.about(&name, None);
    let moved = match moving::event_type(thing) {
        Ok(moved) => moved,
        Err(left) => {
            report.skip(&about, left.code, &left.detail);
            return Ok(report);
        }
    };
    match target.event_type(moved).await {
        Ok((outcome, left)) => {
            report.count(&about, &outcome);
            left.iter().for_each(|left| report.find(&about, left.code, &left.detail));
        }
        Err(Trouble::Refused(problem)) => report.skip(&about, "refused", &problem.detail),
        Err(Trouble::Fatal(error)) => return Err(error),
    }
    Ok(report)
}

/// An application and its endpoints. What was done before something went wrong is told as well.
async fn application(
    source: &Source,
    target: &Target,
    args: &Args,
    thing: &Value,
) -> (Report, anyhow::Result<()>) {
    let mut report = Report::default();
    let done = application_into(&mut report, source, target, args, thing).await;
    (report, done)
}

async fn application_into(
    report: &mut Report,
    source: &Source,
    target: &Target,
    args: &Args,
    thing: &Value,
) -> anyhow::Result<()> {
    let id = thing.get("id").and_then(Value::as_str).unwrap_or("?").to_owned();
    let about = Kind::Application.about(&id, None);
    let moved = match moving::application(thing, &args.realm) {
        Ok(moved) => moved,
        Err(left) => {
            report.skip(&about, left.code, &left.detail);
            return Ok(());
        }
    };
    let tenant = match target.application(&moved).await {
        Ok((outcome, tenant)) => {
            report.count(&about, &outcome);
            tenant
        }
        Err(Trouble::Refused(problem)) => {
            report.skip(&about, "refused", &problem.detail);
            return Ok(());
        }
        Err(Trouble::Fatal(error)) => return Err(error),
    };
    moved.left.iter().for_each(|left| report.find(&about, left.code, &left.detail));
    let there = match &tenant {
        Some(tenant) => target.subscriptions(tenant).await?,
        // Nothing is made in a dry run.
        None => Vec::new(),
    };
    let mut endpoints = source.endpoints(&id);
    while let Some(page) = endpoints.next(source).await? {
        for thing in &page {
            endpoint(report, (source, target, args), (&id, tenant.as_deref(), &there), thing)
                .await?;
        }
    }
    Ok(())
}

async fn endpoint(
    report: &mut Report,
    (source, target, args): (&Source, &Target, &Args),
    (application, tenant, there): (&str, Option<&str>, &[Value]),
    thing: &Value,
) -> anyhow::Result<()> {
    let id = thing.get("id").and_then(Value::as_str).unwrap_or("?").to_owned();
    let about = Kind::Endpoint.about(&id, Some(application));
    let place = format!("/app/{}/endpoint/{}", segment(application), segment(&id));
    let secret = source.get(&format!("{place}/secret")).await?;
    let headers = source.get(&format!("{place}/headers")).await?;
    if secret.is_none() && headers.is_none() {
        // It was deleted a moment ago.
        return Ok(());
    }
    let headers = headers.unwrap_or_else(|| json!({}));
    let transformation = source.transformation(&place).await?;
    let given = Endpoint {
        thing,
        secret: secret.as_ref().and_then(|own| own.get("key")).and_then(Value::as_str),
        headers: &headers,
        transformation: transformation.as_ref(),
    };
    let moved = match moving::endpoint(&given, &args.topic, &args.profile) {
        Ok(moved) => moved,
        Err(left) => {
            report.skip(&about, left.code, &left.detail);
            return Ok(());
        }
    };
    match target.endpoint(tenant, there, &moved).await {
        Ok((outcome, now)) => {
            report.count(&about, &outcome);
            let before = now.filter(|_| !matches!(outcome, Outcome::Made));
            let open = moved.left.iter().filter(|left| {
                before.as_ref().is_none_or(|before| !moving::is_settled(before, left))
            });
            open.for_each(|left| report.find(&about, left.code, &left.detail));
        }
        Err(Trouble::Refused(problem)) => report.skip(&about, "refused", &problem.detail),
        Err(Trouble::Fatal(error)) => return Err(error),
    }
    Ok(())
}

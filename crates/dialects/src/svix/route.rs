//! What there is to ask for: every path and method of the API, with what it needs.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use posthorn_domain::{Capability, Scope};

use super::access::Needs;
use super::call::Whose::{Application, Organisation};
use super::call::{Answer, enter};
use super::failure::Failure;
use super::{
    Service, application, attempt, destination, endpoint, event_type, health, message, operational,
    poller, portal, replay, task,
};

const READ: Needs = Needs::Organisation(Scope::Read);
const MANAGE: Needs = Needs::Organisation(Scope::Manage);
const PUBLISH: Needs = Needs::Organisation(Scope::Publish);
const VIEW: Needs = Needs::Application(Capability::View);
const SECRET: Needs = Needs::Application(Capability::SeeSecret);
const ROTATE: Needs = Needs::Application(Capability::RotateSecret);
const CHANGE: Needs = Needs::Application(Capability::ManageEndpoints);
const RESEND: Needs = Needs::Application(Capability::Resend);

/// What the whole API has and this one does not: the first parts of its paths, with a name for people.
const ELSEWHERE: [(&[&str], &str); 10] = [
    (&["stream"], "streams"),
    (&["connector"], "connectors"),
    (&["environment"], "export and import of environments"),
    (&["stats"], "statistics of usage"),
    (&["admin"], "administration over this API"),
    (&["ingest"], "ingestion"),
    (&["app", "*", "integration"], "integrations"),
    (&["app", "*", "autoconfig"], "automatic configuration"),
    (&["app", "*", "endpoint", "*", "transformation"], "transformations"),
    (&["app", "*", "destination", "*", "transformation"], "transformations"),
];

/// Whether a path begins like this.
fn begins(path: &[&str], with: &[&str]) -> bool {
    path.len() >= with.len()
        && path.iter().zip(with).all(|(own, wanted)| *wanted == "*" || own == wanted)
}

/// Answers a request for a path, given as its parts below the prefix.
pub(super) async fn answer(service: Service, path: &[&str], request: Request<Body>) -> Answer {
    let method = match request.method() {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    let (get, post, put) = (method == Method::GET, method == Method::POST, method == Method::PUT);
    let (patch, delete) = (method == Method::PATCH, method == Method::DELETE);
    let service = &service;
    match path {
        ["health"] if get => health::whole(service).await,
        ["health", "ping"] if get => Ok(health::ping()),

        ["app"] if get => application::list(&enter(service, request, READ).await?),
        ["app"] if post => enter(service, request, MANAGE).await?.once(application::create).await,
        ["app", app] if get => application::get(&enter(service, request, VIEW).await?, app),
        ["app", app] if put => application::put(enter(service, request, MANAGE).await?, app).await,
        ["app", app] if patch => {
            application::patch(enter(service, request, MANAGE).await?, app).await
        }
        ["app", app] if delete => {
            application::delete(enter(service, request, MANAGE).await?, app).await
        }

        ["app", app, "endpoint"] if get => {
            endpoint::list(&enter(service, request, VIEW).await?, app)
        }
        ["app", app, "endpoint"] if post => {
            let act = |call, seed| endpoint::create(call, app, seed);
            enter(service, request, CHANGE).await?.once(act).await
        }
        ["app", app, "endpoint", ep] if get => {
            endpoint::get(&enter(service, request, VIEW).await?, app, ep)
        }
        ["app", app, "endpoint", ep] if put => {
            endpoint::put(enter(service, request, CHANGE).await?, app, ep).await
        }
        ["app", app, "endpoint", ep] if patch => {
            endpoint::patch(enter(service, request, CHANGE).await?, app, ep).await
        }
        ["app", app, "endpoint", ep] if delete => {
            endpoint::delete(enter(service, request, CHANGE).await?, app, ep).await
        }
        ["app", app, "endpoint", ep, "secret"] if get => {
            endpoint::secret::get(&enter(service, request, SECRET).await?, Application(app), ep)
                .await
        }
        ["app", app, "endpoint", ep, "secret", "rotate"] if post => {
            let act = |call, seed| endpoint::secret::rotate(call, Application(app), ep, seed);
            enter(service, request, ROTATE).await?.once(act).await
        }
        ["app", app, "endpoint", ep, "headers"] if get => {
            endpoint::headers::get(&enter(service, request, VIEW).await?, Application(app), ep)
        }
        ["app", app, "endpoint", ep, "headers"] if put || patch => {
            let call = enter(service, request, CHANGE).await?;
            endpoint::headers::change(call, Application(app), ep, put).await
        }
        ["app", app, "endpoint", ep, "stats"] if get => {
            endpoint::stats::attempts(&enter(service, request, VIEW).await?, app, ep, true).await
        }
        ["app", app, "endpoint", ep, "attempt-stats"] if get => {
            endpoint::stats::attempts(&enter(service, request, VIEW).await?, app, ep, false).await
        }
        ["app", app, "endpoint", ep, "send-example"] if post => {
            let act = |call, seed| message::send_example(call, app, ep, seed);
            enter(service, request, MANAGE).await?.once(act).await
        }
        ["app", app, "endpoint", ep, what @ ("recover" | "replay-missing" | "bulk-replay")]
            if post =>
        {
            let act = |call, seed| replay::begin(call, app, ep, what, seed);
            enter(service, request, RESEND).await?.once(act).await
        }
        ["app", app, "endpoint", ep, "msg"] if get => {
            attempt::messages_of(&enter(service, request, VIEW).await?, app, ep).await
        }

        ["app", app, "destination"] if get => {
            destination::list(&enter(service, request, VIEW).await?, app).await
        }
        ["app", app, "destination"] if post => {
            let act = |call, seed| destination::create(call, app, seed);
            enter(service, request, CHANGE).await?.once(act).await
        }
        ["app", app, "destination", one] if get => {
            destination::get(&enter(service, request, VIEW).await?, app, one).await
        }
        ["app", app, "destination", one] if put => {
            destination::put(enter(service, request, CHANGE).await?, app, one).await
        }
        ["app", app, "destination", one] if patch => {
            destination::patch(enter(service, request, CHANGE).await?, app, one).await
        }
        ["app", app, "destination", one] if delete => {
            destination::delete(enter(service, request, CHANGE).await?, app, one).await
        }
        ["app", app, "destination", one, "secret", "rotate"] if post => {
            let act = |call, seed| destination::rotate(call, app, one, seed);
            enter(service, request, ROTATE).await?.once(act).await
        }
        ["app", app, "poller", sink] if get => {
            poller::poll(&enter(service, request, VIEW).await?, app, sink).await
        }
        // These move something that is kept.
        ["app", app, "poller", sink, "consumer", consumer] if get => {
            poller::consume(&enter(service, request, RESEND).await?, app, sink, consumer).await
        }
        ["app", app, "poller", sink, "consumer", consumer, "seek"] if post => {
            let act = |call, _| poller::seek(call, app, sink, consumer);
            enter(service, request, RESEND).await?.once(act).await
        }

        ["app", app, "msg"] if get => {
            message::list(&enter(service, request, VIEW).await?, app).await
        }
        ["app", app, "msg"] if post => {
            message::create(enter(service, request, PUBLISH).await?, app).await
        }
        ["app", app, "msg", "precheck", "active"] if post => {
            message::precheck(enter(service, request, VIEW).await?, app).await
        }
        ["app", app, "msg", "bulk-expunge"] if post => {
            let act = |call, _| message::expunge_some(call, app);
            enter(service, request, MANAGE).await?.once(act).await
        }
        ["app", app, "msg", "expunge-all-contents"] if post => {
            let act = |call, seed| message::expunge_all(call, app, seed);
            enter(service, request, MANAGE).await?.once(act).await
        }
        ["app", app, "msg", msg] if get => {
            message::get(&enter(service, request, VIEW).await?, app, msg).await
        }
        ["app", app, "msg", msg, "content"] if delete => {
            message::expunge(&enter(service, request, MANAGE).await?, app, msg).await
        }
        ["app", app, "msg", msg, "endpoint"] if get => {
            attempt::destinations(&enter(service, request, VIEW).await?, app, msg).await
        }
        ["app", app, "msg", msg, "endpoint", ep, "resend"] if post => {
            let act = |call, _| attempt::resend(call, app, msg, ep);
            enter(service, request, RESEND).await?.once(act).await
        }
        ["app", app, "msg", msg, "endpoint", ep, "attempt"] if get => {
            let call = enter(service, request, VIEW).await?;
            attempt::of_message(&call, app, msg, Some(ep)).await
        }
        ["app", app, "attempt", "endpoint", ep] if get => {
            attempt::of_endpoint(&enter(service, request, VIEW).await?, app, ep).await
        }
        ["app", app, "attempt", "msg", msg] | ["app", app, "msg", msg, "attempt"] if get => {
            attempt::of_message(&enter(service, request, VIEW).await?, app, msg, None).await
        }
        ["app", app, "msg", msg, "attempt", one] if get => {
            attempt::get(&enter(service, request, VIEW).await?, app, msg, one).await
        }
        ["app", app, "msg", msg, "attempt", one, "content"] if delete => {
            attempt::expunge(&enter(service, request, MANAGE).await?, app, msg, one).await
        }

        ["event-type"] if get => event_type::list(&enter(service, request, VIEW).await?),
        ["event-type"] if post => {
            enter(service, request, MANAGE).await?.once(event_type::create).await
        }
        ["event-type", "import", "openapi"] if post => {
            let act = |call, _| event_type::import(call);
            enter(service, request, MANAGE).await?.once(act).await
        }
        ["event-type", name] if get => event_type::get(&enter(service, request, VIEW).await?, name),
        ["event-type", name] if put => {
            event_type::put(enter(service, request, MANAGE).await?, name).await
        }
        ["event-type", name] if patch => {
            event_type::patch(enter(service, request, MANAGE).await?, name).await
        }
        ["event-type", name] if delete => {
            event_type::delete(&enter(service, request, MANAGE).await?, name).await
        }

        ["auth", "app-portal-access" | "dashboard-access", app] if post => {
            let act = |call, seed| portal::link(call, app, seed);
            enter(service, request, MANAGE).await?.once(act).await
        }
        ["auth", "logout"] if post => portal::logout(&enter(service, request, VIEW).await?).await,
        ["auth", "app", app, "expire-all"] if post => {
            portal::expire(enter(service, request, MANAGE).await?, app).await
        }

        ["background-task"] if get => task::list(&enter(service, request, READ).await?).await,
        ["background-task", one] if get => {
            task::get(&enter(service, request, READ).await?, one).await
        }

        ["operational-webhook", "endpoint", rest @ ..] => {
            of_organisation(service, rest, &method, request).await
        }
        path => {
            // A token comes first, also where there is nothing.
            enter(service, request, VIEW).await?;
            let elsewhere = ELSEWHERE.iter().find(|(with, _)| begins(path, with));
            Err(match elsewhere {
                Some((_, what)) => Failure::not_implemented(what),
                None if is_known(path) => not_allowed(&method),
                None => Failure::NotFound,
            })
        }
    }
}

/// The same for endpoints of the organisation itself.
async fn of_organisation(
    service: &Service,
    path: &[&str],
    method: &Method,
    request: Request<Body>,
) -> Answer {
    let (get, post, put) =
        (*method == Method::GET, *method == Method::POST, *method == Method::PUT);
    let (patch, delete) = (*method == Method::PATCH, *method == Method::DELETE);
    match path {
        [] if get => operational::list(&enter(service, request, READ).await?),
        [] if post => enter(service, request, MANAGE).await?.once(operational::create).await,
        [ep] if get => operational::get(&enter(service, request, READ).await?, ep),
        [ep] if put => operational::put(enter(service, request, MANAGE).await?, ep).await,
        [ep] if delete => operational::delete(enter(service, request, MANAGE).await?, ep).await,
        [ep, "secret"] if get => {
            let call = enter(service, request, MANAGE).await?;
            endpoint::secret::get(&call, Organisation, ep).await
        }
        [ep, "secret", "rotate"] if post => {
            let act = |call, seed| endpoint::secret::rotate(call, Organisation, ep, seed);
            enter(service, request, MANAGE).await?.once(act).await
        }
        [ep, "headers"] if get => {
            endpoint::headers::get(&enter(service, request, READ).await?, Organisation, ep)
        }
        [ep, "headers"] if put || patch => {
            let call = enter(service, request, MANAGE).await?;
            endpoint::headers::change(call, Organisation, ep, put).await
        }
        path => {
            enter(service, request, READ).await?;
            Err(match path.len() {
                0 | 1 => not_allowed(method),
                _ => Failure::NotFound,
            })
        }
    }
}

fn not_allowed(method: &Method) -> Failure {
    Failure::Refused {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        detail: format!("{method} is not allowed here."),
    }
}

/// Whether there is something at a path, whatever is done there.
fn is_known(path: &[&str]) -> bool {
    let known: [&[&str]; 14] = [
        &["health"],
        &["app"],
        &["app", "*"],
        &["app", "*", "endpoint"],
        &["app", "*", "endpoint", "*"],
        &["app", "*", "destination"],
        &["app", "*", "destination", "*"],
        &["app", "*", "msg"],
        &["app", "*", "msg", "*"],
        &["event-type"],
        &["event-type", "*"],
        &["background-task"],
        &["background-task", "*"],
        &["auth", "*"],
    ];
    known.iter().any(|with| with.len() == path.len() && begins(path, with))
}

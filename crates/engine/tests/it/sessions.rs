//! Sessions of pages: what a token opens, until when, and what takes it away.

use std::time::Duration;

use posthorn_domain::{
    ActorKind, AuditEntry, Capability, Home, KeyId, Opener, RealmName, Scope, Session, SessionKind,
    TenantId,
};
use posthorn_engine::{Acting, Bound, Engine, Error, NewPortalLink, NewSession, Options};
use posthorn_sealing::vault::Secret;
use posthorn_store::{AuditFilter, Listing, SessionFilter, Store};

use crate::house::{House, TENANT, rest};

const HOUR: Duration = Duration::from_secs(3_600);

fn text(secret: &Secret) -> &str {
    secret.expose_str().expect("a text")
}

async fn key(engine: &Engine, bound: impl Into<Bound>, scopes: &[Scope]) -> KeyId {
    let made = engine.create_key(bound, scopes.to_vec(), "ci".to_owned(), None, None).await;
    made.expect("a key").key.id
}

fn console(opener: Opener, home: Home) -> NewSession {
    let scopes = match home {
        Home::Operator => vec![Scope::Operator],
        Home::Realm(_) | Home::Tenant(_) => vec![Scope::Manage, Scope::Read],
    };
    NewSession { opener, name: "jo".to_owned(), home, scopes, groups: Vec::new(), lasts: HOUR }
}

async fn opens(engine: &Engine, token: &str) -> Option<SessionKind> {
    engine.authenticate_session(token).await.expect("answers").map(|session| session.kind)
}

async fn alive(engine: &Engine) -> Vec<Session> {
    let filter = SessionFilter { unexpired_at: Some(engine.now()), ..SessionFilter::default() };
    engine.sessions(filter, Listing::newest(100)).await.expect("a list").items
}

/// Lines about sessions, oldest first.
async fn lines(house: &House) -> Vec<AuditEntry> {
    let page = house.store.audit(AuditFilter::default(), Listing::newest(1_000)).await;
    let mut lines = page.expect("a list").items;
    lines.reverse();
    lines.retain(|line| matches!(line.action.noun(), "session" | "portal_link"));
    lines
}

fn is_gone<T>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::NotFound("portal link"))), "{:?}", answer.err());
}

#[tokio::test(start_paused = true)]
async fn a_session_lasts_until_its_time_is_over_and_is_then_removed() {
    let (house, engine) = House::open().await;
    let (session, token) =
        engine.open_session(console(Opener::Proxy, Home::Operator)).await.expect("a session");
    let found = engine.authenticate_session(text(&token)).await.expect("answers");
    assert_eq!(found.as_deref(), Some(&session));
    assert_eq!(session.expires_at, session.created_at.plus(HOUR.into()));
    rest(3_599).await;
    assert_eq!(opens(&engine, text(&token)).await, Some(SessionKind::Console));
    rest(1).await;
    assert_eq!(opens(&engine, text(&token)).await, None);
    rest(60).await;
    let left = house.store.session(session.id).await.expect("answers");
    assert_eq!(left, None, "whoever does the chores has removed it");
}

#[tokio::test(start_paused = true)]
async fn a_right_id_with_a_wrong_secret_opens_nothing() {
    let (_house, engine) = House::open().await;
    let open = async || engine.open_session(console(Opener::Proxy, Home::Operator)).await;
    let ((one, token), (_, other)) = (open().await.expect("one"), open().await.expect("another"));
    let secret = text(&other).split_once('.').expect("two halves").1;
    assert_eq!(opens(&engine, &format!("{}.{secret}", one.id)).await, None);
    assert_eq!(opens(&engine, &text(&token).replace("ses_", "lnk_")).await, None);
    for malformed in ["", "ses_", "nonsense", &one.id.to_string()] {
        assert_eq!(opens(&engine, malformed).await, None, "{malformed}");
    }
    is_gone(engine.redeem_portal_link(&text(&token).replace("ses_", "lnk_")).await);
    assert!(opens(&engine, text(&token)).await.is_some());
    let shown = format!("{one:?} {token:?}");
    assert!(!shown.contains(secret) && !shown.contains("token"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_link_is_redeemed_once_on_any_node() {
    let house = House::new();
    let (one, two) = (house.engine(1).await, house.engine(2).await);
    let new = NewPortalLink {
        name: "Ann".to_owned(),
        capabilities: vec![Capability::Resend, Capability::Resend],
        label: Some("theirs".to_owned()),
        back: Some("https://example.com/back".to_owned()),
        ..NewPortalLink::default()
    };
    let (link, token) = one.create_portal_link(TENANT, new).await.expect("a link");
    assert_eq!(link.capabilities, [Capability::View, Capability::Resend]);
    assert_eq!(opens(&one, text(&token)).await, None, "a link is no session");
    let as_session = text(&token).replace("lnk_", "ses_");
    assert_eq!(opens(&one, &as_session).await, None, "whatever it is called");
    let (a, b) =
        tokio::join!(one.redeem_portal_link(text(&token)), two.redeem_portal_link(text(&token)));
    let (session, opened) = match (a, b) {
        (Ok(redeemed), Err(Error::NotFound("portal link")))
        | (Err(Error::NotFound("portal link")), Ok(redeemed)) => redeemed,
        (a, b) => panic!("{:?} {:?}", a.err(), b.err()),
    };
    is_gone(two.redeem_portal_link(text(&token)).await);
    for engine in [&one, &two] {
        assert_eq!(opens(engine, text(&opened)).await, Some(SessionKind::Portal));
    }
    assert_eq!(
        (&session.name, &session.label, &session.back, &session.home),
        (&link.name, &link.label, &link.back, &Home::Tenant(TENANT))
    );
    assert_eq!(session.capabilities, link.capabilities);
    assert_eq!(session.expires_at, session.created_at.plus(HOUR.into()));
    assert_ne!(session.id, link.id);
    two.end_session(session.id).await.expect("ended");
    assert_eq!(opens(&one, text(&opened)).await, None, "a logout counts on every node");
    let again = one.end_session(session.id).await;
    assert!(matches!(again, Err(Error::NotFound("session"))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_nobody_redeems_in_time_is_worth_nothing() {
    let (_house, engine) = House::open().await;
    let make = async || engine.create_portal_link(TENANT, NewPortalLink::default()).await;
    let ((_, late), (taken_back, token)) = (make().await.expect("one"), make().await.expect("two"));
    engine.end_session(taken_back.id).await.expect("taken back");
    is_gone(engine.redeem_portal_link(text(&token)).await);
    rest(300).await;
    is_gone(engine.redeem_portal_link(text(&late)).await);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_takes_its_sessions_and_links_along() {
    let house = House::new();
    let (one, two) = (house.engine(1).await, house.engine(2).await);
    rest(10).await;
    let own = key(&one, Some(TENANT), &[Scope::Manage]).await;
    let other = key(&one, Some(TENANT), &[Scope::Manage]).await;
    let new = |key| NewPortalLink { key: Some(key), ..NewPortalLink::default() };
    let by_key = console(Opener::Key { id: own }, Home::Tenant(TENANT));
    let (_, session) = one.open_session(by_key).await.expect("a session");
    let (_, waiting) = one.create_portal_link(TENANT, new(own)).await.expect("a link");
    let (_, redeemed) = one.create_portal_link(TENANT, new(own)).await.expect("a link");
    let (_, redeemed) = one.redeem_portal_link(text(&redeemed)).await.expect("redeemed");
    let (kept, others) = one.create_portal_link(TENANT, new(other)).await.expect("a link");
    for token in [&session, &redeemed] {
        assert!(opens(&two, text(token)).await.is_some());
    }
    two.revoke_key(own).await.expect("revoked");
    for engine in [&one, &two] {
        for token in [&session, &redeemed] {
            assert_eq!(opens(engine, text(token)).await, None);
        }
        is_gone(engine.redeem_portal_link(text(&waiting)).await);
    }
    let left: Vec<_> = alive(&one).await.iter().map(|session| session.id).collect();
    assert_eq!(left, [kept.id], "and nothing is left of them");
    one.redeem_portal_link(text(&others)).await.expect("that of another key");
    let late = console(Opener::Key { id: own }, Home::Tenant(TENANT));
    let late = one.open_session(late).await;
    assert!(matches!(late, Err(Error::NotFound("key"))), "{:?}", late.err());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_runs_out_ends_its_sessions() {
    let (_house, engine) = House::open().await;
    let until = engine.now().plus(posthorn_domain::Span::from_secs(60));
    let made = engine.create_key(None, vec![Scope::Operator], String::new(), Some(until), None);
    let id = made.await.expect("a key").key.id;
    let new = console(Opener::Key { id }, Home::Operator);
    let (_, token) = engine.open_session(new).await.expect("a session");
    rest(59).await;
    assert!(opens(&engine, text(&token)).await.is_some());
    rest(1).await;
    assert_eq!(opens(&engine, text(&token)).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_being_deleted_has_no_sessions() {
    let house = House::new();
    let (one, two) = (house.engine(1).await, house.engine(2).await);
    rest(10).await;
    let acme = one.create_tenant("acme".to_owned()).await.expect("a tenant").id;
    let make = async || one.create_portal_link(acme, NewPortalLink::default()).await;
    let ((_, waiting), (_, redeemed)) = (make().await.expect("one"), make().await.expect("two"));
    let (_, portal) = one.redeem_portal_link(text(&redeemed)).await.expect("redeemed");
    let new = console(Opener::Provider, Home::Tenant(acme));
    let (_, own) = one.open_session(new.clone()).await.expect("a session");
    two.delete_tenant(acme, "me".to_owned()).await.expect("begins");
    for engine in [&one, &two] {
        for token in [&portal, &own] {
            assert_eq!(opens(engine, text(token)).await, None, "from the first moment");
        }
        is_gone(engine.redeem_portal_link(text(&waiting)).await);
        let refused = engine.create_portal_link(acme, NewPortalLink::default()).await;
        assert!(matches!(refused, Err(Error::TenantDeleted)), "{:?}", refused.err());
        let refused = engine.open_session(new.clone()).await;
        assert!(matches!(refused, Err(Error::TenantDeleted)), "{:?}", refused.err());
    }
    rest(60).await;
    let every = one.sessions(SessionFilter::default(), Listing::newest(10)).await.expect("a list");
    assert!(every.items.is_empty(), "{:?}", every.items);
}

#[tokio::test(start_paused = true)]
async fn sessions_of_a_realm_go_with_it() {
    let (_house, engine) = House::open().await;
    let realm = RealmName::new("eu").expect("a name");
    let new = console(Opener::Provider, Home::Realm(realm.clone()));
    let early = engine.open_session(new.clone()).await;
    assert!(matches!(early, Err(Error::NotFound("realm"))), "{:?}", early.err());
    let contents = posthorn_engine::RealmContents::default();
    engine.put_realm(realm.clone(), contents).await.expect("a realm");
    let (_, token) = engine.open_session(new).await.expect("a session");
    assert!(opens(&engine, text(&token)).await.is_some());
    engine.delete_realm(realm).await.expect("deleted");
    assert_eq!(opens(&engine, text(&token)).await, None);
}

#[tokio::test(start_paused = true)]
async fn all_with_a_label_end_at_once() {
    let (house, engine) = House::open().await;
    let acme = engine.create_tenant("acme".to_owned()).await.expect("a tenant").id;
    let labelled = |label: &str| {
        let label = Some(label.to_owned());
        NewPortalLink { label, ..NewPortalLink::default() }
    };
    let mut tokens = Vec::new();
    for (tenant, label) in [(TENANT, "a"), (TENANT, "a"), (TENANT, "b"), (acme, "a")] {
        let link = engine.create_portal_link(tenant, labelled(label)).await.expect("a link").1;
        tokens.push(engine.redeem_portal_link(text(&link)).await.expect("redeemed").1);
    }
    engine.create_portal_link(TENANT, labelled("a")).await.expect("a link");
    assert_eq!(engine.end_labelled_sessions(TENANT, "a").await.expect("ended"), 3);
    let mut open = Vec::new();
    for token in &tokens {
        open.push(opens(&engine, text(token)).await.is_some());
    }
    assert_eq!(open, [false, false, true, true]);
    let before = lines(&house).await;
    assert_eq!(engine.end_labelled_sessions(TENANT, "a").await.expect("answers"), 0);
    assert_eq!(lines(&house).await, before, "nothing was ended");
    let last = before.last().expect("a line");
    assert_eq!((last.action.as_str(), last.object.id.as_str()), ("session.ended", "a"));
    assert_eq!(last.tenant, Some(TENANT));
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_session_has_its_line() {
    let (house, engine) = House::open().await;
    let address = "192.0.2.7".parse().ok();
    let visitor = engine.acting(Acting::visitor("portal", address));
    let (opened, _) =
        engine.open_session(console(Opener::Proxy, Home::Operator)).await.expect("a session");
    let operator =
        engine.acting(Acting::session("ses_1", "jo", Home::Operator, "console", address));
    let new = NewPortalLink { name: "Ann".to_owned(), ..NewPortalLink::default() };
    let (link, token) = operator.create_portal_link(TENANT, new).await.expect("a link");
    let (redeemed, _) = visitor.redeem_portal_link(text(&token)).await.expect("redeemed");
    is_gone(visitor.redeem_portal_link(text(&token)).await);
    operator.end_session(redeemed.id).await.expect("ended");
    let all = lines(&house).await;
    let said: Vec<_> = all
        .iter()
        .map(|line| {
            let actor = line.actor.id.clone().unwrap_or_default();
            (line.action.as_str(), line.object.id.clone(), actor, line.origin.surface.as_str())
        })
        .collect();
    let id = |session: &Session| session.id.to_string();
    assert_eq!(
        said,
        [
            ("session.opened", id(&opened), id(&opened), "console"),
            ("portal_link.created", id(&link), "ses_1".to_owned(), "console"),
            ("portal_link.redeemed", id(&redeemed), id(&redeemed), "portal"),
            ("session.ended", id(&redeemed), "ses_1".to_owned(), "console"),
        ]
    );
    assert!(all.iter().all(|line| line.actor.kind == ActorKind::Session));
    assert_eq!(all[2].origin.address, address);
    assert_eq!((all[2].tenant, all[2].object.name.as_deref()), (Some(TENANT), Some("Ann")));
    assert_eq!(all[2].detail["link"], link.id.to_string());
    let secret = text(&token).split_once('.').expect("two halves").1;
    let written = serde_json::to_string(&all).expect("a text");
    assert!(!written.contains(secret), "nothing of a token is in a line");
}

#[tokio::test(start_paused = true)]
async fn links_and_sessions_that_are_made_again_of_their_seed_are_those_that_are_there() {
    let (house, engine) = House::open().await;
    let made = |chance| NewPortalLink {
        feature_flags: vec!["beta".to_owned()],
        seed: Some((engine.now(), chance)),
        ..NewPortalLink::default()
    };
    let (link, token) = engine.create_portal_link(TENANT, made(1)).await.expect("a link");
    let (session, opened) = engine.open_portal(TENANT, made(1_000)).await.expect("a session");
    let (same, again) = engine.create_portal_link(TENANT, made(1)).await.expect("the same");
    assert_eq!((same.id, text(&again)), (link.id, text(&token)));
    let (same, again) = engine.open_portal(TENANT, made(1_000)).await.expect("the same");
    assert_eq!((same.id, text(&again)), (session.id, text(&opened)));
    assert_eq!(alive(&engine).await.len(), 2);
    assert_eq!(opens(&engine, text(&opened)).await, Some(SessionKind::Portal));
    assert_eq!(session.feature_flags, ["beta"]);
    let (other, _) = engine.open_portal(TENANT, made(2_000)).await.expect("another");
    assert_ne!(other.id, session.id);
    assert_eq!(lines(&house).await.len(), 5, "one for each link, one for each session");
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_bounds_is_refused() {
    let (_house, engine) = House::open().await;
    let refused = async |field: &str, new: NewPortalLink| {
        let answer = engine.create_portal_link(TENANT, new).await.err();
        let found = match &answer {
            Some(Error::Event { field, .. } | Error::TooLong { field, .. }) => *field,
            other => panic!("{field}: {other:?}"),
        };
        assert_eq!(found, field);
    };
    let usual = NewPortalLink::default;
    let day = Duration::from_secs(86_400);
    refused("name", NewPortalLink { name: "x".repeat(201), ..usual() }).await;
    refused("name", NewPortalLink { name: "a\nb".to_owned(), ..usual() }).await;
    for (time, max) in [(Duration::ZERO, day), (day + Duration::from_secs(1), day)] {
        assert!(time < Duration::from_secs(1) || time > max);
        refused("redeem_within", NewPortalLink { redeem_within: time, ..usual() }).await;
    }
    refused("expires_in", NewPortalLink { lasts: 8 * day, ..usual() }).await;
    for label in [String::new(), "x".repeat(129), "a\0b".to_owned()] {
        refused("label", NewPortalLink { label: Some(label), ..usual() }).await;
    }
    let long = format!("https://example.com/{}", "x".repeat(2_048));
    for back in [
        "",
        "http://example.com/",
        "//example.com/",
        "https:",
        "javascript:alert(1)",
        "https://a:b@example.com/",
        "https://exa mple.com/",
        &long,
    ] {
        let back = Some(back.to_owned());
        refused("return_url", NewPortalLink { back, ..usual() }).await;
    }
    let widest = NewPortalLink {
        name: "x".repeat(200),
        redeem_within: day,
        lasts: 7 * day,
        label: Some("x".repeat(128)),
        back: Some("https://example.com:8443/a?b=c".to_owned()),
        ..usual()
    };
    engine.create_portal_link(TENANT, widest).await.expect("within all bounds");
    let reserved = engine.create_portal_link(TenantId::SYSTEM, usual()).await;
    assert!(matches!(reserved, Err(Error::TenantReserved)), "{:?}", reserved.err());
    let home = Home::Tenant(TENANT);
    let new = console(Opener::Proxy, home.clone());
    for bad in [
        NewSession { lasts: day + Duration::from_secs(1), ..new.clone() },
        NewSession { scopes: Vec::new(), ..new.clone() },
        NewSession { scopes: vec![Scope::Operator], ..new.clone() },
        NewSession { name: "x".repeat(201), ..new.clone() },
    ] {
        assert!(engine.open_session(bad.clone()).await.is_err(), "{bad:?}");
    }
    let unknown = TenantId::new(engine.now(), 7);
    let answer = engine.open_session(NewSession { home: Home::Tenant(unknown), ..new }).await;
    assert!(matches!(answer, Err(Error::NotFound("tenant"))), "{:?}", answer.err());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_so_many_sessions_and_links_and_no_more() {
    let house = House::new();
    let mut options = Options::default();
    options.quotas.sessions = 3;
    let engine = house.engine_with(1, options).await;
    let acme = engine.create_tenant("acme".to_owned()).await.expect("a tenant").id;
    let make = || engine.create_portal_link(TENANT, NewPortalLink::default());
    let (_, first) = make().await.expect("one");
    engine.redeem_portal_link(text(&first)).await.expect("it takes the place of its link");
    // Of several at once no more are let in than fit.
    let made = tokio::join!(make(), make(), make(), make());
    let made = [made.0, made.1, made.2, made.3];
    let fine = made.iter().filter(|made| made.is_ok()).count();
    assert!((1..=2).contains(&fine), "{fine}");
    while make().await.is_ok() {}
    assert_eq!(alive(&engine).await.len(), 3);
    let full = make().await.err();
    assert!(matches!(full, Some(Error::SessionsFull { has: 3, limit: 3 })), "{full:?}");
    let full = engine.open_session(console(Opener::Proxy, Home::Tenant(TENANT))).await;
    assert!(matches!(full, Err(Error::SessionsFull { .. })), "{:?}", full.err());
    engine.create_portal_link(acme, NewPortalLink::default()).await.expect("others have room");
    engine.open_session(console(Opener::Proxy, Home::Operator)).await.expect("operators too");
    rest(300).await;
    make().await.expect("links that ran out do not count");
}

#[tokio::test(start_paused = true)]
async fn somebody_may_look_everywhere_without_being_an_operator() {
    let (_house, engine) = House::open().await;
    let other = engine.create_tenant("other".to_owned()).await.expect("a tenant");
    let new = console(Opener::Provider, Home::Operator);
    let groups = vec!["auditors".to_owned()];
    let new = NewSession { scopes: vec![Scope::Read], groups: groups.clone(), ..new };
    let (session, token) = engine.open_session(new.clone()).await.expect("a session");
    let found = engine.authenticate_session(text(&token)).await.expect("answers").expect("it");
    assert_eq!(found.groups, groups);
    let principal = engine.principal_of(&session).expect("somebody");
    assert!(principal.is_everywhere() && !principal.is_operator());
    assert!(principal.acts_for(&other) && principal.key.allows(Scope::Read));
    assert!(!principal.key.allows(Scope::Manage));
    let system = engine.catalog().tenant(TenantId::SYSTEM).expect("always there");
    assert!(!principal.acts_for(&system), "what operators are told is theirs");
    // With other rights than those it was opened with.
    let bound = Home::Tenant(other.id);
    let (now, principal) =
        engine.principal_with(&session, bound.clone(), vec![Scope::Manage]).expect("rights");
    assert_eq!((now.home, now.id), (bound.clone(), session.id));
    assert!(principal.acts_for(&other) && !principal.is_everywhere());
    assert!(!principal.key.allows(Scope::Read));
    engine.delete_tenant(other.id, String::new()).await.expect("deleted");
    assert!(engine.principal_with(&session, bound, vec![Scope::Read]).is_none(), "no such place");
    for groups in [vec!["x".to_owned(); 65], vec!["x".repeat(257)], vec!["a\nb".to_owned()]] {
        let answer = engine.open_session(NewSession { groups, ..new.clone() }).await;
        assert!(answer.is_err(), "bounded");
    }
}

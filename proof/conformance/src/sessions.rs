//! Cases about sessions of pages: they read back, a link is redeemed once, and what is ended is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    AuditAction, AuditEntry, Capability, CatalogVersion, Home, KeyId, Opener, RealmName, Scope,
    Session, SessionId, SessionKind, TenantId, Timestamp,
};
use posthorn_store::{
    Along, AuditFilter, CatalogChange, EndSessions, Error, Listing, Order, Page, Refusal,
    SessionFilter, Store, session_place,
};

use super::Fixture;
use super::audit::line;
use super::builders::{Setting, at, delivery, unique};
use super::model::ModelStore;
use super::upgrade::Still;

/// A session of a tenant.
fn session(home: Home, kind: SessionKind, made: i64) -> Session {
    let id = SessionId::new(at(made), unique().into());
    let byte = id.as_bytes()[15];
    Session {
        id,
        kind,
        token: [byte; 32],
        opener: Opener::Proxy,
        name: "Ann \u{1F4EF}".to_owned(),
        home,
        scopes: Vec::new(),
        groups: vec!["ops \u{1F4EF}".to_owned()],
        capabilities: vec![Capability::View, Capability::Resend],
        feature_flags: vec!["beta".to_owned()],
        label: None,
        back: None,
        created_at: at(made),
        expires_at: at(made + 1_000),
        lasts: Duration::ZERO,
    }
}

fn of(tenant: TenantId, kind: SessionKind, made: i64) -> Session {
    session(Home::Tenant(tenant), kind, made)
}

fn link(tenant: TenantId, made: i64) -> Session {
    Session { lasts: Duration::from_secs(3_600), ..of(tenant, SessionKind::Link, made) }
}

async fn create(setting: &Setting, new: &Session) {
    setting.store.create_session(new.clone(), Along::default()).await.expect("created");
}

async fn find(setting: &Setting, id: SessionId) -> Option<Session> {
    setting.store.session(id).await.expect("answers")
}

async fn end(setting: &Setting, which: EndSessions) -> u64 {
    setting.store.end_sessions(which, Along::default()).await.expect("ended")
}

/// Everything that a filter finds, in this order, in parts of this size.
async fn walk(
    store: &dyn Store,
    filter: &SessionFilter,
    order: Order,
    limit: usize,
) -> Vec<Session> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let listing = Listing { order, after, limit };
        let page = store.sessions(filter.clone(), listing).await.expect("a list");
        assert!(page.items.len() <= limit, "at most the limit");
        let places: Vec<_> = page.items.iter().map(|one| session_place(one.id)).collect();
        assert_eq!((page.first, &page.places), (places.first().copied(), &places));
        found.extend(page.items);
        after = page.last;
        if !page.more {
            return found;
        }
        assert!(after.is_some(), "it says where it goes on");
    }
    panic!("a list comes to an end");
}

async fn all(setting: &Setting) -> Vec<SessionId> {
    let found = walk(&*setting.store, &SessionFilter::default(), Order::OldestFirst, 100).await;
    found.into_iter().map(|session| session.id).collect()
}

async fn lines(setting: &Setting) -> Vec<AuditEntry> {
    let listing = Listing { order: Order::OldestFirst, after: None, limit: 100 };
    setting.store.audit(AuditFilter::default(), listing).await.expect("a list").items
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, why: Refusal) {
    match answer {
        Err(Error::Refused(refusal)) if refusal == why => {}
        other => panic!("{other:?} is not {why:?}"),
    }
}

/// All of them, as somebody could make them.
fn each_kind(tenant: TenantId) -> [Session; 4] {
    let key = KeyId::new(at(1), 77);
    let mut console = session(Home::Operator, SessionKind::Console, 10);
    console.opener = Opener::Key { id: key };
    console.scopes = vec![Scope::Operator];
    let realm = RealmName::new("staging").expect("a name");
    let mut of_realm = session(Home::Realm(realm), SessionKind::Console, 20);
    of_realm.opener = Opener::Provider;
    of_realm.scopes = vec![Scope::Manage, Scope::Read];
    let mut portal = of(tenant, SessionKind::Portal, 30);
    portal.opener = Opener::Link { key: Some(key) };
    portal.label = Some("their-session \u{0} ä".to_owned());
    portal.back = Some("https://example.com/back?x=1".to_owned());
    let mut link = link(tenant, 40);
    link.opener = Opener::Link { key: None };
    link.name = String::new();
    [console, of_realm, portal, link]
}

/// What is written comes back, also after a crash; expired ones as well.
pub async fn sessions_read_back_as_written(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let version = setting.version_of(setting.tenant).await;
    let sessions = each_kind(setting.tenant);
    let mut written = Vec::new();
    for (place, new) in sessions.iter().enumerate() {
        let entry = line(setting.tenant, AuditAction::SessionOpened, at(1_000 + place as i64));
        setting.store.create_session(new.clone(), entry.clone().into()).await.expect("created");
        written.push(entry);
    }
    let setting = setting.reopen(fixture).await;
    for session in &sessions {
        assert_eq!(find(&setting, session.id).await.as_ref(), Some(session));
    }
    assert_eq!(find(&setting, SessionId::new(at(0), u128::MAX)).await, None);
    assert_eq!(lines(&setting).await, written);
    assert_eq!(setting.version_of(setting.tenant).await, version, "no change of the catalog");
}

/// What cannot be created leaves nothing, and no line.
pub async fn sessions_are_created_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let with = || Along::from(line(tenant, AuditAction::SessionOpened, at(1_000)));
    let first = of(tenant, SessionKind::Portal, 10);
    create(&setting, &first).await;
    let again = Session { name: "Bob".to_owned(), ..first.clone() };
    refused(store.create_session(again, with()).await, Refusal::AlreadyExists);
    let nobodys = of(TenantId::new(at(0), u128::MAX), SessionKind::Portal, 10);
    refused(store.create_session(nobodys.clone(), with()).await, Refusal::NotFound);
    assert_eq!(find(&setting, first.id).await, Some(first.clone()));
    assert_eq!(all(&setting).await, [first.id]);
    let waiting = link(tenant, 20);
    create(&setting, &waiting).await;
    refused(store.redeem_session(waiting.id, nobodys, with()).await, Refusal::NotFound);
    refused(store.redeem_session(waiting.id, first, with()).await, Refusal::AlreadyExists);
    assert!(find(&setting, waiting.id).await.is_some(), "the link was not used up");
    assert_eq!(lines(&setting).await, []);
}

/// A link is there once: the session it is redeemed for takes its place.
pub async fn a_link_is_redeemed_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let (link, ended) = (link(tenant, 10), link(tenant, 11));
    create(&setting, &link).await;
    create(&setting, &ended).await;
    let portal = of(tenant, SessionKind::Portal, 20);
    let entry = line(tenant, AuditAction::PortalLinkRedeemed, at(1_000));
    let with = || Along::from(entry.clone());
    assert!(store.redeem_session(link.id, portal.clone(), with()).await.expect("answers"));
    assert_eq!(find(&setting, link.id).await, None);
    assert_eq!(find(&setting, portal.id).await, Some(portal.clone()));
    assert_eq!(end(&setting, EndSessions::One(ended.id)).await, 1);
    let other = of(tenant, SessionKind::Portal, 30);
    let late = Along::from(line(tenant, AuditAction::PortalLinkRedeemed, at(1_001)));
    for nothing in [link.id, ended.id, portal.id, SessionId::new(at(0), u128::MAX)] {
        let redeemed = store.redeem_session(nothing, other.clone(), late.clone()).await;
        assert!(!redeemed.expect("answers"), "{nothing}");
    }
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, [portal.id], "a session is no link");
    assert_eq!(lines(&setting).await, [entry]);
}

/// Of many who redeem a link at once, one does.
pub async fn one_of_many_redeems_a_link(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let tenant = setting.tenant;
    for round in 0..5 {
        let link = link(tenant, 10 + round);
        create(&setting, &link).await;
        let tries = (0..8).map(|n| {
            let (store, link) = (Arc::clone(&setting.store), link.id);
            let portal = of(tenant, SessionKind::Portal, 100 + n);
            let entry = line(tenant, AuditAction::PortalLinkRedeemed, at(1_000 + n));
            tokio::spawn(async move {
                let redeemed = store.redeem_session(link, portal.clone(), entry.into()).await;
                redeemed.expect("answers").then_some(portal.id)
            })
        });
        let mut made = Vec::new();
        for tried in tries.collect::<Vec<_>>() {
            made.extend(tried.await.expect("no panic"));
        }
        assert_eq!(made.len(), 1, "one of them");
        assert_eq!(all(&setting).await, made);
        assert_eq!(lines(&setting).await.len(), 1 + round as usize);
        assert_eq!(end(&setting, EndSessions::One(made[0])).await, 1);
    }
}

/// The same sessions in this store and in the model.
async fn filled(setting: &Setting) -> (ModelStore, TenantId) {
    let other = setting.other_tenant().await;
    let model = ModelStore::new(Arc::new(Still));
    for tenant in [setting.tenant, other] {
        let new = posthorn_domain::Tenant::new(tenant, format!("t-{tenant}"), at(0));
        model.change_catalog(CatalogChange::CreateTenant(new)).await.expect("a tenant");
    }
    let realm = RealmName::new("staging").expect("a name");
    let homes = [
        Home::Operator,
        Home::Realm(realm),
        Home::Tenant(setting.tenant),
        Home::Tenant(other),
        Home::Realm(RealmName::default()),
    ];
    for n in 0..60_usize {
        let kind = SessionKind::ALL[n % 3];
        let mut new = session(homes[n % 5].clone(), kind, 1_000 + (n as i64 / 2) * 10);
        new.label = (n % 4 != 0).then(|| format!("label-{}", n % 2));
        new.expires_at = at(5_000 + (n as i64 % 7) * 100);
        setting.store.create_session(new.clone(), Along::default()).await.expect("created");
        model.create_session(new, Along::default()).await.expect("created");
    }
    (model, other)
}

/// Each filter, and each two of them, finds what the model finds, in both orders and in parts of any size.
pub async fn filters_of_sessions_find_what_the_model_finds(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (model, other) = filled(&setting).await;
    let none = SessionFilter::default;
    let label = |text: &str| Some(text.to_owned());
    let singles = [
        none(),
        SessionFilter { tenant: Some(setting.tenant), ..none() },
        SessionFilter { tenant: Some(other), ..none() },
        SessionFilter { realm: Some(RealmName::new("staging").expect("a name")), ..none() },
        SessionFilter { kind: Some(SessionKind::Link), ..none() },
        SessionFilter { kind: Some(SessionKind::Console), ..none() },
        SessionFilter { label: label("label-1"), ..none() },
        SessionFilter { label: label("nothing"), ..none() },
        SessionFilter { unexpired_at: Some(at(5_300)), ..none() },
    ];
    let mut met = 0;
    for (place, one) in singles.iter().enumerate() {
        for two in &singles[place..] {
            let both = SessionFilter {
                kind: one.kind.or(two.kind),
                tenant: one.tenant.or(two.tenant),
                realm: one.realm.clone().or(two.realm.clone()),
                label: one.label.clone().or(two.label.clone()),
                unexpired_at: one.unexpired_at.or(two.unexpired_at),
            };
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let wanted = walk(&model, &both, order, 1_000).await;
                assert!(wanted.iter().all(|session| both.wants(session)), "{both:?}");
                for limit in [2, 50] {
                    let found = walk(&*setting.store, &both, order, limit).await;
                    assert_eq!(found, wanted, "{both:?} {order:?} {limit}");
                }
                met += wanted.len();
            }
        }
    }
    assert!(met > 300, "the filters find something: {met}");
}

/// A search for what is rare stops after a while, says how far it came, and goes on there.
pub async fn a_search_for_sessions_that_is_too_long_stops(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let rare = of(setting.tenant, SessionKind::Console, 1_000);
    create(&setting, &rare).await;
    let mut made = Vec::new();
    for n in 0..2_100 {
        let (store, new) =
            (Arc::clone(&setting.store), of(setting.tenant, SessionKind::Portal, 2_000 + n));
        made.push(tokio::spawn(async move { store.create_session(new, Along::default()).await }));
        if made.len() == 100 {
            for one in made.drain(..) {
                one.await.expect("no panic").expect("created");
            }
        }
    }
    let filter = SessionFilter { kind: Some(SessionKind::Console), ..SessionFilter::default() };
    let page = setting.store.sessions(filter.clone(), Listing::newest(10)).await.expect("a list");
    let Page { items, more, scanned_until, last, .. } = page;
    // The model looks at everything.
    if items.is_empty() {
        assert!(more && last.is_some(), "it goes on");
        let until = scanned_until.expect("it says how far it came");
        assert!(until > at(2_000) && until < at(4_100), "{until}");
    }
    assert_eq!(walk(&*setting.store, &filter, Order::NewestFirst, 10).await, [rare]);
}

/// One, those of a key, those with a label, those of a tenant: exactly these go, and others stay.
pub async fn sessions_end_in_each_way(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (tenant, other) = (setting.tenant, setting.other_tenant().await);
    let (key, another) = (KeyId::new(at(1), 1), KeyId::new(at(1), 2));
    let made = |of_tenant, opener, label: Option<&str>, made| Session {
        opener,
        label: label.map(str::to_owned),
        ..of(of_tenant, SessionKind::Portal, made)
    };
    let by_key = made(tenant, Opener::Key { id: key }, None, 10);
    let by_link = made(other, Opener::Link { key: Some(key) }, None, 20);
    let of_another = made(tenant, Opener::Key { id: another }, Some("a"), 30);
    let waiting = Session { label: Some("a".to_owned()), ..link(tenant, 40) };
    let foreign = made(other, Opener::Proxy, Some("a"), 50);
    let labelled = made(tenant, Opener::Proxy, Some("b"), 60);
    let console = session(Home::Operator, SessionKind::Console, 70);
    let everything =
        [&by_key, &by_link, &of_another, &waiting, &foreign, &labelled, &console].map(Clone::clone);
    for new in &everything {
        create(&setting, new).await;
    }
    let mut left: BTreeSet<SessionId> = everything.iter().map(|session| session.id).collect();
    let mut written = Vec::new();
    for (which, gone) in [
        (EndSessions::OfKey(key), vec![by_key.id, by_link.id]),
        (EndSessions::Labelled(tenant, "a".to_owned()), vec![of_another.id, waiting.id]),
        (EndSessions::One(labelled.id), vec![labelled.id]),
        (EndSessions::OfTenant(other), vec![foreign.id]),
    ] {
        let entry = line(tenant, AuditAction::SessionEnded, at(1_000 + written.len() as i64));
        let ended = setting.store.end_sessions(which.clone(), entry.clone().into()).await;
        assert_eq!(ended.expect("ended"), gone.len() as u64, "{which:?}");
        written.push(entry);
        gone.iter().for_each(|id| assert!(left.remove(id)));
        assert_eq!(all(&setting).await, left.iter().copied().collect::<Vec<_>>(), "{which:?}");
        // When there is none left, nothing goes along.
        let again = line(tenant, AuditAction::SessionEnded, at(2_000));
        let ended = setting.store.end_sessions(which, again.into()).await;
        assert_eq!(ended.expect("answers"), 0);
    }
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, [console.id]);
    assert_eq!(lines(&setting).await, written);
}

/// A plan that is out of date leaves nothing at all.
pub async fn a_stale_plan_changes_no_session(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let to = setting.subscribe().await;
    let good = setting.planned(vec![delivery(to, None)]).await;
    let mut stale = good.clone();
    stale.catalog = CatalogVersion(stale.catalog.0 - 1);
    let entry = line(tenant, AuditAction::SessionEnded, at(1_000));
    let with = |told| Along { told: vec![told], audit: Some(Box::new(entry.clone())) };
    let (link, portal) = (link(tenant, 10), of(tenant, SessionKind::Portal, 20));
    create(&setting, &link).await;
    let late = || with(stale.clone());
    refused(store.create_session(portal.clone(), late()).await, Refusal::Stale);
    refused(store.redeem_session(link.id, portal.clone(), late()).await, Refusal::Stale);
    refused(store.end_sessions(EndSessions::One(link.id), late()).await, Refusal::Stale);
    assert_eq!(all(&setting).await, [link.id]);
    assert_eq!(lines(&setting).await, []);
    let id = good.event.id;
    assert!(store.redeem_session(link.id, portal.clone(), with(good)).await.expect("redeemed"));
    assert_eq!(all(&setting).await, [portal.id]);
    assert_eq!(lines(&setting).await, [entry]);
    assert!(store.event(tenant, id).await.expect("answers").is_some(), "it was told");
}

/// What counts is what has time left.
pub async fn sessions_are_counted_while_they_last(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    for n in 0..4 {
        create(&setting, &of(setting.tenant, SessionKind::Portal, 10 * n)).await;
        create(&setting, &link(other, 10 * n)).await;
    }
    create(&setting, &session(Home::Operator, SessionKind::Console, 10)).await;
    for (when, count) in [(999, 4), (1_000, 3), (1_029, 1), (1_030, 0)] {
        for tenant in [setting.tenant, other] {
            let counted = setting.store.count_sessions(tenant, at(when)).await.expect("a count");
            assert_eq!(counted, count, "at {when}");
        }
    }
}

/// They go when their time is over, those first that ended first, some at a time.
pub async fn old_sessions_go_in_bites(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut by_end = Vec::new();
    for n in 0..9_i64 {
        let kind = SessionKind::ALL[n as usize % 3];
        let expires_at = at(2_000 - n);
        let new = Session { expires_at, ..of(setting.tenant, kind, 10 + n) };
        create(&setting, &new).await;
        by_end.insert(0, new.id);
    }
    let prune = |before: Timestamp| setting.store.prune_sessions(before, 4);
    assert_eq!(prune(at(1_992)).await.expect("pruned"), 0, "none of them is over");
    for (gone, left) in [(4, 5), (2, 3), (0, 3)] {
        assert_eq!(prune(at(1_998)).await.expect("pruned"), gone);
        let wanted: BTreeSet<_> = by_end[9 - left..].iter().copied().collect();
        assert_eq!(all(&setting).await, wanted.into_iter().collect::<Vec<_>>());
    }
}

/// From the moment that a tenant is to be deleted nobody gets a session, and with it all of them go.
pub async fn a_deleted_tenant_has_no_sessions(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let doomed = setting.other_tenant().await;
    let kept = [
        session(Home::Operator, SessionKind::Console, 5),
        of(setting.tenant, SessionKind::Portal, 6),
        link(setting.tenant, 7),
    ];
    for new in &kept {
        create(&setting, new).await;
    }
    for n in 0..25 {
        create(&setting, &of(doomed, SessionKind::Portal, 100 + n)).await;
    }
    let waiting = link(doomed, 200);
    create(&setting, &waiting).await;
    let job = super::deletion::begun_with(&setting, doomed, Along::default()).await;
    let with = || Along::from(line(doomed, AuditAction::SessionOpened, at(1_000)));
    let late = of(doomed, SessionKind::Portal, 300);
    refused(setting.store.create_session(late.clone(), with()).await, Refusal::NotFound);
    refused(setting.store.redeem_session(waiting.id, late, with()).await, Refusal::NotFound);
    assert_eq!(all(&setting).await.len(), 29, "nothing goes before its time");
    super::deletion::finish(&setting, &job, 10).await;
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, kept.map(|session| session.id));
    assert_eq!(lines(&setting).await, []);
}

//! What the tests of EFGS callbacks stand on: backends of countries that take callbacks over https,
//! names that lead to them, and servers that believe this machine as a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthorn_testkit::authority::{Authority, Clients, Pair};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use serde_json::Value;

use crate::name_server::NameServer;

/// A country's backend.
pub(crate) struct Backend {
    pub(crate) host: String,
    pub(crate) port: u16,
    receiver: Receiver,
    keeps: Arc<AtomicBool>,
}

impl Backend {
    fn start(authority: &Authority, host: &str) -> Self {
        let receiver = Receiver::secure(authority, host, Clients::Anybody);
        let (host, port, keeps) = (host.to_owned(), receiver.address.port(), Arc::default());
        let backend = Self { host, port, receiver, keeps };
        backend.script(|_, _| (Duration::ZERO, 200));
        backend
    }

    /// From now on connections are kept open for the next callback.
    pub(crate) fn keep_connections(&self) {
        self.keeps.store(true, Ordering::SeqCst);
    }

    pub(crate) fn url(&self) -> String {
        self.receiver.url("/callback")
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.receiver.seen()
    }

    /// The tags in the order they came.
    pub(crate) fn tags(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.query("batchTag").to_owned()).collect()
    }

    /// What it does with its nth callback (from 0), by its tag: how long it takes, and the status.
    pub(crate) fn script(
        &self,
        script: impl Fn(usize, &str) -> (Duration, u16) + Send + Sync + 'static,
    ) {
        let keeps = Arc::clone(&self.keeps);
        self.receiver.script(move |seen| {
            let (wait, status) = script(seen.nth, seen.query("batchTag"));
            let answer = Answer::from(status).after(wait).body("x".repeat(1_024));
            if keeps.load(Ordering::SeqCst) { answer.kept() } else { answer }
        });
    }

    /// Waits for so many callbacks.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Request> {
        self.receiver.wait_for(count)
    }
}

/// The own_addresses: names, an authority for the backends.
pub(crate) struct Stage {
    pub(crate) names: NameServer,
    pub(crate) authority: Authority,
}

/// Waits and locks of seconds instead of minutes; everything else is the profile's own.
pub(crate) const QUICK: &str = "{schedule: {backoff: {fixed: {wait: 300ms}}}}";

impl Stage {
    pub(crate) fn new() -> Self {
        Self { names: NameServer::start(), authority: Authority::new("backends") }
    }

    /// With a quick server.
    pub(crate) fn serving() -> (Self, Home, Server) {
        let stage = Self::new();
        let (home, server) = stage.home(QUICK, "").served();
        (stage, home, server)
    }

    pub(crate) fn backend(&self, host: &str) -> Backend {
        self.names.set(host, &[[127, 0, 0, 1]]);
        Backend::start(&self.authority, host)
    }

    /// A directory with a configuration: `policy` changes the profile, `more` the dialect.
    pub(crate) fn home(&self, policy: &str, more: &str) -> Home {
        let mut home = Home::new();
        home.tenant = Some("efgs".to_owned());
        let roots = home.write("roots.pem", &self.authority.pem);
        let config = format!(
            "server: {{listen: '127.0.0.1:0'}}\n\
             egress: {{allow: [127.0.0.0/8], resolvers: ['{}'], extra_roots: '{}'}}\n\
             admission: {{disk_warn_percent: 100, disk_refuse_percent: 100, auth_failures_per_minute: 1000}}\n\
             engine: {{drain_timeout: 2s, lease: 2s, heartbeat_interval: 200ms}}\n\
             profiles: {{efgs: {{policy: {policy}}}}}\n\
             dialects: {{efgs: {{enabled: true, proxies: [127.0.0.1]{more}}}}}\n",
            self.names.address,
            roots.display(),
        );
        home.write("posthorn.yaml", config);
        home
    }
}

/// A country with the certificate its backend calls us with.
pub(crate) struct Country {
    pub(crate) name: String,
    pub(crate) own: Pair,
    thumbprint: String,
    subject: String,
}

impl Country {
    /// Registers a caller of this country.
    pub(crate) fn register(server: &Server, name: &str) -> Self {
        let own = Pair::of_country(name);
        add(server, "caller", &own, None, &["--owner", name, "--scope", "manage"]);
        let (thumbprint, subject) = (own.thumbprint(), format!("CN=backend,O=Health,C={name}"));
        Self { name: name.to_owned(), own, thumbprint, subject }
    }

    /// Registers the certificate that callbacks to this host are sent with.
    pub(crate) fn certify(&self, server: &Server, host: &str, with_key: bool) -> (Pair, String) {
        let pair = Pair::of_country(&self.name);
        let key = with_key.then_some(pair.key.as_str());
        let made = add(server, "client", &pair, key, &["--owner", &self.name, "--host", host]);
        (pair, id_of(&made))
    }

    /// A request as its proxy passes it on.
    #[track_caller]
    pub(crate) fn ask(&self, server: &Server, method: &str, path: &str) -> Reply {
        let headers = [
            ("X-SSL-Client-SHA256", self.thumbprint.as_str()),
            ("X-SSL-Client-DN", &self.subject),
            ("Accept", "application/json; version=1.0"),
        ];
        server.open(method, &format!("/diagnosiskeys/callback{path}")).headers(&headers).send()
    }

    #[track_caller]
    pub(crate) fn put(&self, server: &Server, id: &str, url: &str) -> Reply {
        self.ask(server, "PUT", &format!("/{id}?url={url}"))
    }

    /// Subscribes a backend, whose certificate is registered first.
    #[track_caller]
    pub(crate) fn subscribe(&self, server: &Server, id: &str, backend: &Backend) -> Pair {
        let (pair, _) = self.certify(server, &backend.host, false);
        assert_eq!(self.put(server, id, &backend.url()).expect(200), Value::Null);
        pair
    }

    /// Its callbacks, as the API lists them.
    #[track_caller]
    pub(crate) fn list(&self, server: &Server) -> Value {
        self.ask(server, "GET", "").expect(200)
    }
}

fn add(server: &Server, kind: &str, pair: &Pair, key: Option<&str>, more: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, key_file) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
    std::fs::write(&file, &pair.certificate).expect("written");
    let file = file.display().to_string();
    let mut args = vec!["certificates", "create", "--kind", kind, "--certificate", &file];
    args.extend(more);
    let key_path = key_file.display().to_string();
    if let Some(key) = key {
        std::fs::write(&key_file, key).expect("written");
        args.extend(["--key-file", &key_path]);
    }
    server.ask(&args)
}

/// Announces a batch.
#[track_caller]
pub(crate) fn announce(server: &Server, tag: &str) -> Value {
    let tag = format!("batchTag={tag}");
    server.ask(&["send", "efgs.batches", "batch.created", "-a", &tag, "-a", "date=2020-08-17"])
}

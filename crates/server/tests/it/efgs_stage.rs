//! What the tests of EFGS callbacks stand on: backends of countries that take callbacks over https,
//! names that lead to them, and servers that believe this machine as a proxy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;

use crate::authority::{Authority, Pair, der, of_country};
use crate::caller::{Reply, call};
use crate::harness::{Home, Server, eventually};
use crate::name_server::NameServer;

/// One callback as a backend saw it.
#[derive(Clone, Debug)]
pub(crate) struct Callback {
    pub(crate) at: Instant,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) head: String,
    /// SHA-256 of the client certificate of the handshake.
    pub(crate) shown: Option<String>,
}

impl Callback {
    /// The value of a query parameter.
    pub(crate) fn query(&self, name: &str) -> &str {
        let (_, query) = self.path.split_once('?').expect("a query");
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.path))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What a backend does with its nth callback (from 0), by its tag: how long it takes, and the status.
type Script = Box<dyn Fn(usize, &str) -> (Duration, u16) + Send>;

/// A country's backend.
pub(crate) struct Backend {
    pub(crate) host: String,
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Callback>>>,
    script: Arc<Mutex<Script>>,
    keeps: Arc<AtomicBool>,
}

impl Backend {
    fn start(authority: &Authority, host: &str) -> Self {
        let own = authority.sign(host);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(Arc::new(Anybody(provider)))
            .with_single_cert(vec![der(&own.certificate)], own.private())
            .expect("a pair");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen: Arc<Mutex<Vec<Callback>>> = Arc::default();
        let script: Arc<Mutex<Script>> =
            Arc::new(Mutex::new(Box::new(|_, _| (Duration::ZERO, 200))));
        let keeps = Arc::new(AtomicBool::new(false));
        let (into, by, keeping) = (Arc::clone(&seen), Arc::clone(&script), Arc::clone(&keeps));
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (config, into, by) = (Arc::clone(&config), Arc::clone(&into), Arc::clone(&by));
                let keeping = Arc::clone(&keeping);
                thread::spawn(move || answer(tcp, config, &into, &by, &keeping));
            }
        });
        Self { host: host.to_owned(), port, seen, script, keeps }
    }

    /// From now on connections are kept open for the next callback.
    pub(crate) fn keep_connections(&self) {
        self.keeps.store(true, Ordering::SeqCst);
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}/callback", self.host, self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Callback> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// The tags in the order they came.
    pub(crate) fn tags(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.query("batchTag").to_owned()).collect()
    }

    pub(crate) fn script(&self, script: impl Fn(usize, &str) -> (Duration, u16) + Send + 'static) {
        *self.script.lock().expect("not poisoned") = Box::new(script);
    }

    /// Waits for so many callbacks.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Callback> {
        eventually("the callbacks", || Some(self.seen()).filter(|seen| seen.len() >= count))
    }
}

/// Answers one request and closes, or all of a connection that is kept.
fn answer(
    mut tcp: TcpStream,
    config: Arc<ServerConfig>,
    seen: &Mutex<Vec<Callback>>,
    script: &Mutex<Script>,
    keeps: &AtomicBool,
) {
    let mut connection = ServerConnection::new(config).expect("a connection");
    let mut tls = rustls::Stream::new(&mut connection, &mut tcp);
    while answer_one(&mut tls, seen, script, keeps).is_some() {}
    tls.conn.send_close_notify();
    drop(tls.flush());
}

/// One answer; none when the connection ends here.
fn answer_one(
    tls: &mut rustls::Stream<'_, ServerConnection, TcpStream>,
    seen: &Mutex<Vec<Callback>>,
    script: &Mutex<Script>,
    keeps: &AtomicBool,
) -> Option<()> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match tls.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(n) => request.extend_from_slice(&piece[..n]),
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let shown = tls.conn.peer_certificates().and_then(<[_]>::first).map(|shown| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, shown);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    });
    let callback = Callback {
        at: Instant::now(),
        method: method.to_owned(),
        path: path.to_owned(),
        head: head.clone(),
        shown,
    };
    let tag = callback.query("batchTag").to_owned();
    let nth = {
        let mut seen = seen.lock().expect("not poisoned");
        seen.push(callback);
        seen.len() - 1
    };
    let (wait, status) = script.lock().expect("not poisoned")(nth, &tag);
    thread::sleep(wait);
    let body = "x".repeat(1_024);
    let keeps = keeps.load(Ordering::SeqCst);
    let close = if keeps { "" } else { "Connection: close\r\n" };
    let length = body.len();
    let reply =
        format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n{close}\r\n{body}");
    tls.write_all(reply.as_bytes()).ok()?;
    keeps.then_some(())
}

/// Asks for a certificate and takes any, or none.
#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl rustls::server::danger::ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
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

    pub(crate) fn backend(&self, host: &str) -> Backend {
        self.names.set(host, &[[127, 0, 0, 1]]);
        Backend::start(&self.authority, host)
    }

    /// A directory with a configuration: `policy` changes the profile, `more` the dialect.
    pub(crate) fn home(&self, policy: &str, more: &str) -> Home {
        let mut home = Home::new();
        home.tenant = Some("efgs".to_owned());
        std::fs::write(home.path().join("roots.pem"), &self.authority.pem).expect("written");
        let config = format!(
            "server: {{listen: '127.0.0.1:0'}}\n\
             egress: {{allow: [127.0.0.0/8], resolvers: ['{}'], extra_roots: '{}'}}\n\
             admission: {{disk_warn: 100, disk_refuse: 100, auth_failures: 1000}}\n\
             engine: {{drain: 2s, lease: 2s, heartbeat: 200ms}}\n\
             profiles: {{efgs: {{policy: {policy}}}}}\n\
             dialects: {{efgs: {{enabled: true, proxies: [127.0.0.1]{more}}}}}\n",
            self.names.address,
            home.path().join("roots.pem").display(),
        );
        std::fs::write(home.path().join("posthorn.yaml"), config).expect("written");
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
        let own = of_country(name);
        add(server, "caller", &own, None, &["--owner", name, "--scope", "subscriptions"]);
        let (thumbprint, subject) = (own.thumbprint(), format!("CN=backend,O=Health,C={name}"));
        Self { name: name.to_owned(), own, thumbprint, subject }
    }

    /// Registers the certificate that callbacks to this host are sent with.
    pub(crate) fn certify(&self, server: &Server, host: &str, with_key: bool) -> (Pair, String) {
        let pair = of_country(&self.name);
        let key = with_key.then_some(pair.key.as_str());
        let made = add(server, "client", &pair, key, &["--owner", &self.name, "--host", host]);
        (pair, made["id"].as_str().expect("an id").to_owned())
    }

    /// A request as its proxy passes it on.
    #[track_caller]
    pub(crate) fn ask(&self, server: &Server, method: &str, path: &str) -> Reply {
        let headers = [
            ("X-SSL-Client-SHA256", self.thumbprint.as_str()),
            ("X-SSL-Client-DN", &self.subject),
            ("Accept", "application/json; version=1.0"),
        ];
        let path = format!("/diagnosiskeys/callback{path}");
        call(&server.url, None, method, &path, &headers).expect("an answer")
    }

    #[track_caller]
    pub(crate) fn put(&self, server: &Server, id: &str, url: &str) -> Reply {
        self.ask(server, "PUT", &format!("/{id}?url={url}"))
    }

    /// Subscribes a backend, whose certificate is registered first.
    #[track_caller]
    pub(crate) fn subscribe(&self, server: &Server, id: &str, backend: &Backend) -> Pair {
        let (pair, _) = self.certify(server, &backend.host, false);
        let reply = self.put(server, id, &backend.url()).expect(200);
        assert_eq!(reply.body, "");
        pair
    }

    /// Its callbacks, as the API lists them.
    #[track_caller]
    pub(crate) fn list(&self, server: &Server) -> Value {
        self.ask(server, "GET", "").expect(200).json()
    }
}

fn add(server: &Server, kind: &str, pair: &Pair, key: Option<&str>, more: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, key_file) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
    std::fs::write(&file, &pair.certificate).expect("written");
    let file = file.display().to_string();
    let mut args = vec!["certificates", "add", "--kind", kind, "--certificate", &file];
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

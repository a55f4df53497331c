//! Proxies on the way out, as operators run them: one that tunnels, and one that makes the TLS with the
//! certificate that a header names.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use posthorn_testkit::authority::{Pair, calling};
use posthorn_testkit::wait::PATIENCE;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// `gateway:the proxy's password`, as Basic has it.
pub(crate) const CREDENTIALS: &str = "Basic Z2F0ZXdheTp0aGUgcHJveHkncyBwYXNzd29yZA==";

/// Certificates the proxy holds, by thumbprint.
type Held = Arc<Mutex<Vec<(String, String, String)>>>;

/// A running proxy.
pub(crate) struct OutboundProxy {
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<String>>>,
    held: Held,
}

impl OutboundProxy {
    /// Leads to whatever is on this machine; `root` is whom it trusts where it makes the TLS.
    pub(crate) fn start(root: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (heard, held) = (Arc::<Mutex<Vec<String>>>::default(), Held::default());
        let (into, with, root) = (Arc::clone(&heard), Arc::clone(&held), root.to_owned());
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (into, with, root) = (Arc::clone(&into), Arc::clone(&with), root.clone());
                thread::spawn(move || serve(tcp, &into, &with, &root));
            }
        });
        Self { url, heard, held }
    }

    /// Gives it a certificate to show for those who name it.
    pub(crate) fn hold(&self, pair: &Pair) {
        let entry = (pair.thumbprint(), pair.certificate.clone(), pair.key.clone());
        self.held.lock().expect("not poisoned").push(entry);
    }

    /// The heads of the requests it got.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("not poisoned").clone()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn serve(mut tcp: TcpStream, heard: &Mutex<Vec<String>>, held: &Held, root: &str) -> Option<()> {
    tcp.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    heard.lock().ok()?.push(head.clone());
    if header(&head, "proxy-authorization") != Some(CREDENTIALS) {
        tcp.write_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
        return None;
    }
    let mut words = head.split(' ');
    match (words.next()?, words.next()?) {
        ("CONNECT", address) => tunnel(tcp, address.parse().ok()?),
        (_, url) => forward(tcp, &head, url, held, root),
    }
}

#[expect(clippy::disallowed_methods, reason = "a proxy of the test, on loopback")]
fn tunnel(mut tcp: TcpStream, address: SocketAddr) -> Option<()> {
    let Ok(mut on) = TcpStream::connect(address) else {
        return tcp.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").ok();
    };
    tcp.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    let (mut back, mut there) = (on.try_clone().ok()?, tcp.try_clone().ok()?);
    thread::spawn(move || std::io::copy(&mut back, &mut there));
    std::io::copy(&mut tcp, &mut on).ok()?;
    Some(())
}

/// Makes the TLS with the certificate that the request names, and brings back the answer.
#[expect(clippy::disallowed_methods, reason = "a proxy of the test, on loopback")]
fn forward(mut tcp: TcpStream, head: &str, url: &str, held: &Held, root: &str) -> Option<()> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (host, port) = authority.split_once(':')?;
    let named = header(head, "x-ssl-client-sha256")?;
    let pair = held.lock().ok()?.iter().find(|(known, ..)| known == named).cloned();
    let (_, certificate, key) = pair?;
    let own = Pair { certificate, key };
    let config = calling(root, Some(&own));
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let session = ClientConnection::new(config, name).ok()?;
    // Every name of these tests leads to this machine.
    let on = TcpStream::connect(("127.0.0.1", port.parse::<u16>().ok()?)).ok()?;
    let mut tls = StreamOwned::new(session, on);
    let first = format!("GET {path} HTTP/1.1\r\n");
    let kept = head.lines().skip(1).filter(|line| !line.to_lowercase().starts_with("proxy-"));
    let request = kept.fold(first, |all, line| all + line + "\r\n");
    tls.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    drop(tls.read_to_end(&mut answer));
    tcp.write_all(&answer).ok()
}

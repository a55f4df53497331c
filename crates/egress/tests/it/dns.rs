//! A name server on loopback that says whatever a test scripts, over UDP and TCP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_egress::{Egress, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

pub(crate) const A: u16 = 1;
pub(crate) const CNAME: u16 = 5;
pub(crate) const AAAA: u16 = 28;
pub(crate) const HTTPS: u16 = 65;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Lower case, with the trailing dot.
    pub(crate) name: String,
    pub(crate) kind: u16,
    pub(crate) tcp: bool,
    /// How many questions for the same name and kind came before.
    pub(crate) number: usize,
}

/// One record: owner, kind, lifetime, data.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

impl Record {
    pub(crate) fn address(name: &str, ttl: u32, ip: IpAddr) -> Self {
        let (kind, data) = match ip {
            IpAddr::V4(ip) => (A, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AAAA, ip.octets().to_vec()),
        };
        Self { name: name.to_owned(), kind, ttl, data }
    }

    pub(crate) fn alias(name: &str, target: &str) -> Self {
        Self { name: name.to_owned(), kind: CNAME, ttl: 60, data: encoded(target) }
    }

    /// An HTTPS record that hints at an IPv4 address.
    pub(crate) fn hint(name: &str, ip: [u8; 4]) -> Self {
        let mut data = vec![0, 1, 0, 0, 4, 0, 4];
        data.extend(ip);
        Self { name: name.to_owned(), kind: HTTPS, ttl: 60, data }
    }
}

/// What is said.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Records(Vec<Record>),
    /// An error code: 2 SERVFAIL, 3 NXDOMAIN, 5 REFUSED.
    Code(u8),
    /// Too long for UDP: ask again over TCP.
    Truncated,
    /// Bytes that are no answer.
    Garbage,
    /// Somebody else's guess first, with the wrong id, then the answer.
    Spoofed(Vec<Record>, Vec<Record>),
    Nothing,
}

/// A name server that never says anything.
#[expect(clippy::disallowed_methods, reason = "a name server of the test, on loopback")]
pub(crate) async fn silent() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("bind")
}

/// A running name server.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Question>>>,
}

impl NameServer {
    pub(crate) async fn start(script: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Self {
        Self::slow(Duration::ZERO, script).await
    }

    /// Thinks before it answers.
    pub(crate) async fn slow(
        thinks: Duration,
        script: impl Fn(&Question) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (udp, tcp) = both().await;
        let address = udp.local_addr().expect("address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let brain = Arc::new(Brain { asked: Arc::clone(&asked), script: Box::new(script) });
        let (udp, thinking) = (Arc::new(udp), Arc::clone(&brain));
        tokio::spawn(async move {
            let mut packet = [0; 4096];
            while let Ok((length, peer)) = udp.recv_from(&mut packet).await {
                let replies = thinking.replies(&packet[..length], false);
                let udp = Arc::clone(&udp);
                tokio::spawn(async move {
                    tokio::time::sleep(thinks).await;
                    for reply in replies {
                        let _ = udp.send_to(&reply, peer).await;
                    }
                });
            }
        });
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = tcp.accept().await {
                let brain = Arc::clone(&brain);
                tokio::spawn(async move {
                    while let Ok(length) = tcp.read_u16().await {
                        let mut packet = vec![0; usize::from(length)];
                        if tcp.read_exact(&mut packet).await.is_err() {
                            return;
                        }
                        for reply in brain.replies(&packet, true) {
                            let length = u16::try_from(reply.len()).expect("a short reply");
                            let framed = [&length.to_be_bytes()[..], &reply].concat();
                            if tcp.write_all(&framed).await.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// Every name has these addresses.
    pub(crate) async fn of(addresses: &[&str]) -> Self {
        let all = ips(addresses);
        Self::start(move |question| addresses_reply(question, 60, &all)).await
    }

    pub(crate) fn asked(&self) -> Vec<Question> {
        self.asked.lock().clone()
    }

    /// How many questions of this kind came.
    pub(crate) fn count(&self, kind: u16) -> usize {
        self.asked.lock().iter().filter(|question| question.kind == kind).count()
    }

    pub(crate) fn egress(&self, options: Options) -> Egress {
        let resolvers = vec![self.address];
        Egress::new(Options { resolvers, ..options }).expect("egress")
    }
}

pub(crate) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

/// Those of the addresses that were asked for.
pub(crate) fn addresses_reply(question: &Question, ttl: u32, all: &[IpAddr]) -> Reply {
    let fits = |ip: &&IpAddr| ip.is_ipv4() == (question.kind == A);
    let record = |ip: &IpAddr| Record::address(&question.name, ttl, *ip);
    Reply::Records(all.iter().filter(fits).map(record).collect())
}

/// UDP and TCP on one port.
#[expect(clippy::disallowed_methods, reason = "a name server of the test, on loopback")]
async fn both() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("address")).await {
            return (udp, tcp);
        }
    }
}

struct Brain {
    asked: Arc<Mutex<Vec<Question>>>,
    script: Box<dyn Fn(&Question) -> Reply + Send + Sync>,
}

impl Brain {
    fn replies(&self, query: &[u8], tcp: bool) -> Vec<Vec<u8>> {
        let (name, end) = decoded(query, 12);
        let kind = u16::from_be_bytes([query[end], query[end + 1]]);
        let question = {
            let mut asked = self.asked.lock();
            let same = |other: &&Question| other.name == name && other.kind == kind;
            let number = asked.iter().filter(same).count();
            let question = Question { name, kind, tcp, number };
            asked.push(question.clone());
            question
        };
        let id = [query[0], query[1]];
        let other_id = [query[0] ^ 0x5A, query[1] ^ 0xA5];
        let asked = &query[12..end + 4];
        match (self.script)(&question) {
            Reply::Records(records) => vec![message(id, asked, 0, &records)],
            Reply::Code(code) => vec![message(id, asked, code, &[])],
            Reply::Truncated => {
                let mut reply = message(id, asked, 0, &[]);
                reply[2] |= 0x02;
                vec![reply]
            }
            Reply::Garbage => vec![[&id[..], b"\xFF\xFFnot DNS at all\0\xC0"].concat()],
            Reply::Spoofed(first, then) => {
                vec![message(other_id, asked, 0, &first), message(id, asked, 0, &then)]
            }
            Reply::Nothing => vec![],
        }
    }
}

fn message(id: [u8; 2], question: &[u8], code: u8, records: &[Record]) -> Vec<u8> {
    let count = u16::try_from(records.len()).expect("few records").to_be_bytes();
    let mut reply = id.to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, count[0], count[1], 0, 0, 0, 0]);
    reply.extend(question);
    for Record { name, kind, ttl, data } in records {
        reply.extend(encoded(name));
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1]);
        reply.extend(ttl.to_be_bytes());
        reply.extend(u16::try_from(data.len()).expect("short data").to_be_bytes());
        reply.extend(data);
    }
    reply
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("a short label"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

/// The name at a place in a query, where nothing is compressed yet, and where it ends.
fn decoded(packet: &[u8], mut at: usize) -> (String, usize) {
    let mut name = String::new();
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        name.push_str(std::str::from_utf8(&packet[at + 1..end]).expect("ASCII"));
        name.push('.');
        at = end;
    }
    name.make_ascii_lowercase();
    (name, at + 1)
}

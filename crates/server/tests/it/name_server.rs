//! A name server on loopback that knows the names a test gives it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// The kind of question that asks for an IPv4 address.
const A: [u8; 2] = [0, 1];

/// A running name server.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    names: Arc<Mutex<BTreeMap<String, Vec<Ipv4Addr>>>>,
}

impl NameServer {
    #[expect(clippy::disallowed_methods, reason = "a name server of the test, on loopback")]
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let names: Arc<Mutex<BTreeMap<String, Vec<Ipv4Addr>>>> = Arc::default();
        let known = Arc::clone(&names);
        thread::spawn(move || {
            let mut question = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                if let Some(reply) = reply(&question[..length], &known.lock().expect("a map")) {
                    drop(socket.send_to(&reply, from));
                }
            }
        });
        Self { address, names }
    }

    /// Says where a name leads from now on; nowhere when there are no addresses.
    pub(crate) fn set(&self, name: &str, addresses: &[[u8; 4]]) {
        let addresses = addresses.iter().copied().map(Ipv4Addr::from).collect();
        self.names.lock().expect("a map").insert(name.to_owned(), addresses);
    }
}

/// The name of a question, and where it ends.
fn name(packet: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8(packet.get(at..at + length)?.to_ascii_lowercase()).ok()?);
        at += length;
    }
}

/// The answer to a packet, when it is a question.
fn reply(packet: &[u8], names: &BTreeMap<String, Vec<Ipv4Addr>>) -> Option<Vec<u8>> {
    let (name, end) = name(packet)?;
    let asked = packet.get(end..end + 2)?;
    let known = names.get(&name).filter(|addresses| !addresses.is_empty());
    let addresses = known.filter(|_| asked == A).map_or(&[][..], Vec::as_slice);
    let code = if known.is_some() { 0 } else { 3 };
    let mut reply = packet.get(..2)?.to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    reply.extend(packet.get(12..end + 4)?);
    for address in addresses {
        // The name of the question, an address, for a second, of four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

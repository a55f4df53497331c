//! Ports to listen on, with messages an operator can act on.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::exit::{Code, Failure};

/// Connections that wait to be accepted; more than the kernel's usual limit is cut by it.
const BACKLOG: u32 = 4_096;

/// Binds without listening: the address is ours, and nobody can connect yet.
/// `setting` is what the address comes from.
pub fn take_port(address: SocketAddr, setting: &str) -> anyhow::Result<TcpSocket> {
    let bind = || -> io::Result<TcpSocket> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of the process before us may linger; they must not keep us from starting.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bind().map_err(|e| explain_listen(address, setting, &e).into())
}

/// Listens on an address that was taken.
pub fn open(socket: TcpSocket, setting: &str) -> anyhow::Result<TcpListener> {
    let address = socket.local_addr()?;
    socket.listen(BACKLOG).map_err(|e| explain_listen(address, setting, &e).into())
}

fn explain_listen(address: SocketAddr, setting: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(Code::InUse, format!("the address {address} is in use by another process"))
                .hint(format!(
                    "stop it, or choose another address with {setting}; port 0 picks a \
                               free port"
                ))
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(Code::Denied, format!("this user may not listen on {address}")).hint(
                format!(
                    "ports below 1024 need extra privileges; choose a higher port with {setting}"
                ),
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            Failure::new(Code::Config, format!("{address} is not an address of this machine"))
                .hint(format!("correct {setting}; 0.0.0.0 and [::] mean all addresses"))
        }
        _ => Failure::new(Code::Failure, format!("cannot listen on {address}: {error}")),
    }
}

//! A wire on loopback that can be cut: what comes to its port goes to another one, until it does not.
//!
//! A cut is silence, not a refusal, as when a cable is pulled: connections that are open stay open and say nothing, new
//! ones are taken by nobody, and when the wire is whole again everything goes on where it was. It needs a Tokio runtime
//! and ends with its last handle.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One wire.
#[derive(Debug)]
pub struct Link {
    port: u16,
    whole: Arc<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl Link {
    /// A wire from a port of its own to another one.
    pub async fn open(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let whole = Arc::new(watch::Sender::new(true));
        let task = tokio::spawn(serve(listener, to, whole.subscribe()));
        Ok(Self { port, whole, task })
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts it.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Makes it whole.
    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, to: u16, mut whole: watch::Receiver<bool>) {
    loop {
        if whole.wait_for(|whole| *whole).await.is_err() {
            return;
        }
        let Ok((near, _)) = listener.accept().await else { continue };
        tokio::spawn(carry(near, to, whole.clone()));
    }
}

/// Carries one connection until both ends have closed it, or the wire is gone.
async fn carry(near: TcpStream, to: u16, mut whole: watch::Receiver<bool>) {
    if whole.wait_for(|whole| *whole).await.is_err() {
        return;
    }
    // Loopback only, between processes that the test started itself.
    #[allow(clippy::disallowed_methods)]
    let far = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).await;
    // Nobody listens: dropping the near end says so.
    let Ok(far) = far else { return };
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(pump(near_in, far_out, whole.clone()), pump(far_in, near_out, whole));
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut whole: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // Also that an end has closed is not known beyond a wire that is cut.
        if whole.wait_for(|whole| *whole).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return drop(to.shutdown().await);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_cut_is_silence_and_nothing_is_lost_when_it_is_mended() {
        let echo = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let link = Link::open(echo.local_addr().expect("an address").port()).await.expect("a link");
        tokio::spawn(async move {
            let (mut stream, _) = echo.accept().await.expect("a connection");
            let (mut from, mut to) = stream.split();
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
        #[allow(clippy::disallowed_methods)]
        let mut near = TcpStream::connect(("127.0.0.1", link.port())).await.expect("a connection");
        let mut heard = [0; 3];
        near.write_all(b"one").await.expect("sent");
        near.read_exact(&mut heard).await.expect("heard");
        link.cut();
        near.write_all(b"two").await.expect("sent");
        let silence = timeout(Duration::from_millis(200), near.read_exact(&mut heard)).await;
        assert!(silence.is_err(), "heard through a wire that is cut");
        link.mend();
        near.read_exact(&mut heard).await.expect("heard");
        assert_eq!(&heard, b"two");
    }
}

//! Keeps the listener's certificate up to date: renewals replace the files, and nobody restarts us.

use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::tls::{ServerTls, at_fault};

/// How often the files are looked at. A renewed certificate is there weeks before the old one ends.
const LOOK: Duration = Duration::from_secs(60);

/// Reads the files again at every SIGHUP and once a minute, until `stop`. What cannot be used is
/// logged once for each change, and the certificate in use stays.
pub async fn watch(server: ServerTls, mut hangups: Signal, stop: CancellationToken) {
    let ServerTls { files, texts, tls } = server;
    let (mut seen, mut unreadable) = (texts, false);
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = hangups.recv() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let texts = match files.read() {
            Ok(texts) => texts,
            Err((key, problem)) => {
                if asked || !unreadable {
                    warn!(
                        key,
                        problem,
                        "the certificate cannot be reloaded; the old one stays in \
                                         use"
                    );
                }
                unreadable = true;
                continue;
            }
        };
        unreadable = false;
        if texts == seen && !asked {
            continue;
        }
        match tls.replace(&texts.certificate, texts.key.as_bytes()) {
            Ok(()) => {
                info!(changed = texts != seen, "the certificate was reloaded and is in use")
            }
            Err(e) => warn!(
                key = at_fault(&e), problem = %e,
                "the new certificate cannot be used; the old one stays in use"
            ),
        }
        seen = texts;
    }
}

/// A server without a certificate goes on at every SIGHUP, until `stop`, and says why nothing changes.
pub async fn nothing_to_read(mut hangups: Signal, stop: CancellationToken) {
    let told = async {
        while hangups.recv().await.is_some() {
            info!(
                "SIGHUP reads the certificate again, and server.tls is not set: nothing was \
                 reloaded. A changed configuration needs a restart"
            );
        }
    };
    stop.run_until_cancelled(told).await;
}

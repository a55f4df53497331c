//! Keeps the listener's certificate up to date: renewals replace the files, and nobody restarts us.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::tls::{ServerTls, at_fault};

/// How often the files are looked at. A renewed certificate is there weeks before the old one ends.
const LOOK: Duration = Duration::from_secs(60);

/// Reads the files again at every SIGHUP and once a minute, until `stop`. What cannot be used is
/// logged once for each change, and the certificate in use stays.
pub async fn watch(server: ServerTls, stop: CancellationToken) {
    let ServerTls { files, texts, tls } = server;
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => Some(hangups),
        Err(e) => {
            warn!(error = %e, "SIGHUP cannot be handled; a new certificate is loaded within a \
                               minute");
            None
        }
    };
    let (mut seen, mut unreadable) = (texts, false);
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            () = hung_up(&mut hangups) => true,
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

/// The next SIGHUP; never, when it cannot be waited for.
async fn hung_up(hangups: &mut Option<Signal>) {
    match hangups {
        Some(hangups) => drop(hangups.recv().await),
        None => std::future::pending().await,
    }
}

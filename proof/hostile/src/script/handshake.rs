//! Modes that end before HTTP begins.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{drip, write};
use crate::mode::Mode;
use crate::receiver::Stage;

/// A record that carries part of a handshake, TLS 1.2 on the outside as in all versions since.
const HANDSHAKE: u8 = 22;
/// A record that carries an alert.
const ALERT: u8 = 21;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("records here are small").to_be_bytes();
    [&[kind, 3, 3], &length[..], content].concat()
}

pub(super) async fn play(stage: &Stage, mut tcp: TcpStream) {
    if let Some(acceptor) = &stage.bad {
        // The sender must end it; whoever goes on has believed a bad certificate.
        if let Ok(mut tls) = acceptor.accept(tcp).await {
            let fooled = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfooled";
            let _ = tls.write_all(fooled).await;
            let _ = tls.shutdown().await;
        }
        return;
    }
    // The ClientHello, or its beginning.
    let mut hello = vec![0; 4 * 1_024];
    if !matches!(tcp.read(&mut hello).await, Ok(read) if read > 0) {
        return;
    }
    match stage.mode {
        Mode::TlsDrip => {
            // A record of 16 KiB that is never complete.
            drip(stage, &mut tcp, &[HANDSHAKE, 3, 3, 0x40, 0], &[2]).await;
        }
        Mode::TlsEndlessMessage => {
            // A ServerHello of 16 MiB, in records of 4 KiB.
            let mut first = vec![2, 0xFF, 0xFF, 0xFF];
            first.resize(4 * 1_024, 0);
            let more = record(HANDSHAKE, &[0; 4 * 1_024]);
            if write(&mut tcp, &record(HANDSHAKE, &first)).await {
                while write(&mut tcp, &more).await {}
            }
        }
        Mode::TlsEmptyRecords => {
            let empty = record(HANDSHAKE, &[]).repeat(100);
            while write(&mut tcp, &empty).await {}
        }
        Mode::TlsWarnings => {
            // Level 1, unrecognised name.
            let warnings = record(ALERT, &[1, 112]).repeat(100);
            while write(&mut tcp, &warnings).await {}
        }
        Mode::TlsPlainHttp => {
            let _ = write(&mut tcp, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
            super::close(tcp).await;
        }
        Mode::TlsAlert => {
            // Level 2, protocol version.
            let _ = write(&mut tcp, &record(ALERT, &[2, 70])).await;
            super::close(tcp).await;
        }
        Mode::TlsReset => drop(tcp.set_zero_linger()),
        // Silence is what is left.
        _ => std::future::pending().await,
    }
}

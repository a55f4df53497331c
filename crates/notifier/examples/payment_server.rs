//! A payment server in one file: it starts a receiver on this machine, tells it of a payment and a
//! refund, in memory and on disk, and prints what happens. The receiver is out of order at first.
//!
//! Run it with `cargo run -p posthorn-notifier --example payment_server`; it ends by itself.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthorn_notifier::{
    CallbacksConfig, EgressOptions, Notifier, PaymentEvent, PersistentNotifier, RefundEvent,
    RetryableNotifier, WebhookObservation,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// How long the whole program may take before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests the receiver fails before it recovers.
const OUT_OF_ORDER: usize = 2;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = start_receiver().await?;
    println!("a receiver listens on {url}; its first {OUT_OF_ORDER} answers will be 503\n");
    let config = CallbacksConfig::from_yaml(&format!(
        "callbacks:
  payment_success_url: {url}
  hmac_secret: only-for-this-example-0123456789abcdef
  retry:
    max_attempts: 5
    initial_interval: 250ms
"
    ))?;
    // Receivers on this machine are closed by default.
    let egress = EgressOptions { allow: vec!["127.0.0.1".parse()?], ..EgressOptions::default() };
    let (ended, mut ends) = mpsc::unbounded_channel();

    println!("in memory:");
    let observer = observer(ended.clone());
    let in_memory = RetryableNotifier::builder(config.clone())
        .egress(egress.clone())
        .metrics(observer)
        .start()?;
    tell(&in_memory).await;
    wait_for_ends(&mut ends, 2).await?;
    in_memory.close().await;

    println!("\non disk:");
    let folder = tempfile::tempdir()?;
    let observer = self::observer(ended);
    let on_disk = PersistentNotifier::sqlite(config, folder.path())
        .egress(egress)
        .metrics(observer)
        .start()
        .await?;
    tell(&on_disk).await;
    wait_for_ends(&mut ends, 2).await?;
    on_disk.close().await;
    println!("\nall webhooks were delivered");
    Ok(())
}

/// What a payment server does: it says what happened, and goes on.
async fn tell(notifier: &dyn Notifier) {
    let payment = PaymentEvent {
        resource_id: "article-42".to_owned(),
        method: "stripe".to_owned(),
        fiat_amount_cents: 1_299,
        fiat_currency: "usd".to_owned(),
        ..PaymentEvent::default()
    };
    notifier.payment_succeeded(payment).await;
    println!("  the payment was handed over");
    let refund = RefundEvent {
        refund_id: "refund-7".to_owned(),
        original_purchase_id: "article-42".to_owned(),
        atomic_amount: 12_990_000,
        token: "USDC".to_owned(),
        ..RefundEvent::default()
    };
    notifier.refund_succeeded(refund).await;
    println!("  the refund was handed over");
}

fn observer(
    ended: mpsc::UnboundedSender<()>,
) -> impl Fn(&WebhookObservation) + Send + Sync + 'static {
    move |webhook| {
        println!(
            "  a {} webhook ended: {} at attempt {}, {} ms after its first",
            webhook.event_type,
            webhook.status.as_str(),
            webhook.attempt,
            webhook.duration.as_millis()
        );
        let _ = ended.send(());
    }
}

async fn wait_for_ends(
    ends: &mut mpsc::UnboundedReceiver<()>,
    count: usize,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..count {
        tokio::time::timeout(PATIENCE, ends.recv()).await?;
    }
    Ok(())
}

/// A receiver that fails the first requests and then takes everything. Returns its URL.
async fn start_receiver() -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/webhooks/payment", listener.local_addr()?);
    let requests = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let nth = requests.fetch_add(1, Ordering::Relaxed);
            let status = if nth < OUT_OF_ORDER { "503 Service Unavailable" } else { "200 OK" };
            tokio::spawn(async move {
                if let Err(problem) = receive(stream, status).await {
                    println!("    receiver: {problem}");
                }
            });
        }
    });
    Ok(url)
}

/// Reads one request, prints what a consumer looks at, and answers.
async fn receive(stream: TcpStream, status: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut length, mut headers) = (0, Vec::new());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(": ") else { continue };
        let name = name.to_ascii_lowercase();
        if name == "content-length" {
            length = value.parse().unwrap_or(0);
        }
        if name.starts_with("x-cedros-") {
            headers.push(format!("{name}: {value}"));
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    println!("    receiver: {} and answers {status}", String::from_utf8_lossy(&body));
    for header in headers {
        println!("              {header}");
    }
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.get_mut().write_all(answer.as_bytes()).await
}

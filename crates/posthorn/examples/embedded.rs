//! Delivery inside one's own process, in one file: it starts a receiver on this machine, publishes an event, and shows
//! how it gets there, although the receiver is out of order at first.
//!
//! Run it with `cargo run -p posthorn --example embedded`; it ends by itself.

use std::error::Error;
use std::time::Duration;

use posthorn::{Event, Posthorn, Subscription};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How long the delivery may take before the program gives up.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hooks", listener.local_addr()?);
    println!("a receiver listens on {url}");
    tokio::spawn(receive(listener));

    // Receivers on this machine are closed unless one says otherwise.
    let posthorn = Posthorn::builder().in_memory().allow("127.0.0.1").build().await?;
    let mut outcomes = posthorn.outcomes();
    let shop = Subscription::to(url)
        .named("shop")
        .topic("orders")
        .event_type("order.*")
        .overrides(serde_json::json!({"schedule": {"backoff": {"fixed": {"wait": "200ms"}}}}));
    let shop = posthorn.subscribe(shop).await?;
    println!("subscribed as {}; the secret for its signatures is made up", shop.id);

    let event = Event::json("orders", "order.paid", &serde_json::json!({"order": 42}))?;
    let published = posthorn.publish(event).await?;
    println!("published {} for {} subscription", published.id, published.deliveries);

    let ended = tokio::time::timeout(PATIENCE, outcomes.next()).await?;
    let ended = ended.ok_or("the engine ended first")?;
    println!("{}: {:?} after {} attempts", ended.delivery, ended.state, ended.spent);
    posthorn.shutdown().await;
    Ok(())
}

/// Answers every request: the first with 503, all others with 200.
async fn receive(listener: TcpListener) {
    let mut answers = ["503 Service Unavailable"].into_iter();
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answers.next().unwrap_or("200 OK");
        if let Err(problem) = serve(stream, answer).await {
            eprintln!("the receiver lost a connection: {problem}");
        }
    }
}

/// Reads one request, prints what it is, and answers it.
async fn serve(stream: TcpStream, answer: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    let mut signature = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.trim().split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or_default(),
            "webhook-signature" => value.clone_into(&mut signature),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    println!("  got {} with signature {signature:.12}…: {answer}", String::from_utf8_lossy(&body));
    let response = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).await
}

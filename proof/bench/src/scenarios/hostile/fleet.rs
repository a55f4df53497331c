//! The hostile receivers as a process of their own.

use std::process::Stdio;

use anyhow::Context;
use posthorn_hostile::{Fleet, Mode, Settings};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What the process says first.
#[derive(Serialize, Deserialize)]
struct Hello {
    authority_pem: String,
    /// Mode and URL, to which anything may be appended.
    urls: Vec<(String, String)>,
}

/// What it says last.
#[derive(Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) connections: u64,
    pub(super) lured: u64,
}

/// Receives until stdin ends: so does the process when whoever started it is gone.
#[expect(clippy::print_stdout, reason = "stdout is how the two processes talk")]
pub(crate) async fn run() -> anyhow::Result<()> {
    let fleet = Fleet::start(Mode::hostile(), Settings::default()).await?;
    let urls = fleet.receivers().iter();
    let hello = Hello {
        authority_pem: fleet.authority_pem().to_owned(),
        urls: urls.map(|r| (r.mode().name().to_owned(), r.url("hook/"))).collect(),
    };
    println!("{}", serde_json::to_string(&hello)?);
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    let connections = fleet.receivers().iter().map(|r| r.seen().connections).sum();
    let seen = Seen { connections, lured: fleet.lured() };
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}

/// The other end of [`run`].
pub(super) struct FleetProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub(super) authority_pem: String,
    pub(super) urls: Vec<(Mode, String)>,
}

impl FleetProcess {
    pub(super) async fn start() -> anyhow::Result<Self> {
        // Receivers are other people's machines: here they get what the server leaves of the cores.
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe()?);
        command.arg("hostile-fleet");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("starting the hostile receivers")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let line = lines.next_line().await?.context("the hostile receivers did not start")?;
        let hello: Hello = serde_json::from_str(&line)?;
        let urls = hello.urls.into_iter();
        let urls = urls.filter_map(|(mode, url)| Some((Mode::parse(&mode)?, url))).collect();
        Ok(Self { child, stdin, lines, authority_pem: hello.authority_pem, urls })
    }

    /// Ends it and asks what it has seen.
    pub(super) async fn stop(mut self) -> anyhow::Result<Seen> {
        drop(self.stdin);
        let line = self.lines.next_line().await?.context("the hostile receivers said nothing")?;
        self.child.wait().await?;
        Ok(serde_json::from_str(&line)?)
    }
}

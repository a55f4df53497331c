//! `posthorn health`: asks a server whether it is ready, for probes of containers and for people.

use super::Context;

/// Ask a server whether it is ready (`/readyz`); needs no key
///
/// Exits with 0 when it is, and with 69 when it is not or does not answer. Where `server.admin_listen` is set, ask
/// that address: `--server http://127.0.0.1:8081`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {}

/// Runs it.
pub async fn run(context: &Context, _args: &Args) -> anyhow::Result<()> {
    let answer = context.client.get("/readyz").await?;
    context.show_one(&answer, "status refusing_publishes")
}

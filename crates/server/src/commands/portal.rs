//! `posthorn portal`.

use posthorn_domain::{Capability, Span};
use serde_json::json;

use super::Context;
use super::noun::given;

/// Create links into the portal
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Create a link into the portal of a tenant; it works once
    ///
    /// Send the customer to the URL. Whoever opens it gets a session that lasts for the time of --expires-in.
    Link {
        /// Your own word for the customer
        #[arg(long, default_value = "")]
        name: String,
        /// What the customer may do: view, see_secret, rotate_secret, manage_endpoints, resend; may be given several
        /// times. Without it, all but see_secret
        #[arg(long = "can", value_name = "CAPABILITY")]
        capabilities: Vec<Capability>,
        /// How long the link can be redeemed, up to 1d
        #[arg(long, value_name = "TIME", default_value = "5m")]
        redeem_within: Span,
        /// How long the session lasts then, up to 7d
        #[arg(long, value_name = "TIME", default_value = "1h")]
        expires_in: Span,
        /// Your own name for the session, to end it by
        #[arg(long)]
        label: Option<String>,
        /// Where the customer goes when the session has ended
        #[arg(long, value_name = "URL")]
        return_url: Option<String>,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let Command::Link { name, capabilities, redeem_within, expires_in, label, return_url } =
        command;
    let body = given(json!({
        "name": name,
        "capabilities": (!capabilities.is_empty()).then_some(capabilities),
        "redeem_within": redeem_within,
        "expires_in": expires_in,
        "label": label,
        "return_url": return_url,
    }));
    let link = context.client.post("/v1/portal/links", &body).await?;
    context.show_one(&link, "url id expires_at")
}

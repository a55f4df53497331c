//! `posthorn notificaties resend`: messages of the past, in the words of that API.

use posthorn_domain::Timestamp;
use serde_json::{Value, json};

use crate::commands::finding::moment;
use crate::commands::jobs::{Pace, start};
use crate::commands::{Context, parse_pair};

/// Which messages, to whom, and how fast.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Nothing before this time: 2026-01-31T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    van: Option<Timestamp>,
    /// Nothing at or after this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    tot: Option<Timestamp>,
    /// Which of them: mislukt or gelukt; with --abonnement also gemist or alle
    #[arg(long, default_value = "mislukt")]
    resultaat: String,
    /// Only in this kanaal
    #[arg(long, value_name = "NAAM")]
    kanaal: Option<String>,
    /// Only with this kenmerk; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    kenmerk: Vec<(String, String)>,
    /// Only of this resource
    #[arg(long)]
    resource: Option<String>,
    /// Only of this actie
    #[arg(long)]
    actie: Option<String>,
    /// Only about this object
    #[arg(long, value_name = "URL")]
    hoofd_object: Option<String>,
    /// Only about this resource
    #[arg(long, value_name = "URL")]
    resource_url: Option<String>,
    /// Only to this abonnement; to all of them when absent
    #[arg(long, value_name = "UUID")]
    abonnement: Option<String>,
    #[command(flatten)]
    pace: Pace,
}

/// Runs it.
pub(super) async fn run(context: &Context, args: &Args) -> anyhow::Result<()> {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let mut body = json!({
        "van": time(args.van),
        "tot": time(args.tot),
        "resultaat": args.resultaat,
        "kanaal": args.kanaal,
        "resource": args.resource,
        "actie": args.actie,
        "hoofdObject": args.hoofd_object,
        "resourceUrl": args.resource_url,
        "abonnement": args.abonnement,
        "perSeconde": args.pace.per_second,
    });
    for (name, value) in &args.kenmerk {
        body["kenmerken"][name] = Value::from(value.as_str());
    }
    start(context, "/v1/notificaties/resend", body, args.pace, "resending").await
}

//! `posthorn certificates`: the registry of certificates.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::noun::{Id, Noun};
use super::{Context, Limit, parse_scope};

const CERTIFICATES: Noun = Noun {
    path: "certificates",
    columns: "ID id, KIND kind, STATE state, HOST host, OWNER owner, ENDS until:not_after",
    fields: "id kind state description subject thumbprint host owner scopes has_key not_before \
             not_after created_at updated_at revoked_at",
};

/// List, show, create, rotate, revoke and delete certificates
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List certificates, with what each is good for and until when
    List(Limit),
    /// Show a certificate
    Show(Id),
    /// Register a certificate
    Create {
        /// What it is for: client (shown to receivers), caller (shown to us), authority (trusted)
        #[arg(long, value_name = "KIND")]
        kind: String,
        /// The PEM file of the certificate, its chain behind it
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// The PEM file of its private key; without it an outbound proxy must hold the key
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The host a client certificate is for, when policies find it by the URL
        #[arg(long, default_value = "")]
        host: String,
        /// To whom it belongs inside the tenant, such as a country
        #[arg(long, default_value = "")]
        owner: String,
        /// What the bearer of a caller certificate may do: publish, manage, read; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", value_parser = parse_scope)]
        scopes: Vec<String>,
        /// For people
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Replace certificate and key; nothing has to be restarted
    Rotate {
        /// Its id
        id: String,
        /// The PEM file of the new certificate
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// The PEM file of the new private key
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Take a certificate back for good
    Revoke(Id),
    /// Remove a certificate and its key
    Delete(Id),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => CERTIFICATES.list(context, *limit).await,
        Command::Show(Id { id }) => CERTIFICATES.show(context, id).await,
        Command::Create { kind, certificate, key_file, host, owner, scopes, description } => {
            let mut body = contents(certificate, key_file.as_deref())?;
            body["kind"] = json!(kind);
            body["description"] = json!(description);
            body["host"] = json!(host);
            body["owner"] = json!(owner);
            body["scopes"] = json!(scopes);
            CERTIFICATES.create(context, &body).await
        }
        Command::Rotate { id, certificate, key_file } => {
            let body = contents(certificate, key_file.as_deref())?;
            let path = format!("{}/rotate", CERTIFICATES.at(id));
            context.show_one(&context.client.post(path, &body).await?, CERTIFICATES.fields)
        }
        Command::Revoke(Id { id }) => {
            CERTIFICATES.act(context, id, "revoke").await?;
            context.done(format_args!("revoked {id}"));
            Ok(())
        }
        Command::Delete(Id { id }) => CERTIFICATES.delete(context, id, "deleted").await,
    }
}

fn contents(certificate: &Path, key: Option<&Path>) -> anyhow::Result<Value> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let mut body = json!({"certificate": read(certificate)?});
    if let Some(key) = key {
        body["key"] = Value::String(read(key)?);
    }
    Ok(body)
}

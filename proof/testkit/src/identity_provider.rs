//! A provider of identities on loopback (OpenID Connect): discovery, keys, a login page that asks nothing, and tokens
//! with real signatures.
//!
//! It is as strict as a real one: redirect URIs and clients must be those it knows, a code works once and only with the
//! verifier that belongs to its challenge. What a test wants to go wrong is said by [`IdentityProvider::spoil`],
//! [`IdentityProvider::mint`] and [`IdentityProvider::answers`].

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::clock::since_1970;
use crate::id_tokens::{Signer, Signs};
use crate::receiver::{Answer, Receiver, Request};

/// Who the server under test is here.
pub const CLIENT_ID: &str = "posthorn console";
/// Its secret, with what forms and Basic have to write in another way.
pub const CLIENT_SECRET: &str = "s3cret: of+the client%";

/// What is known about one code.
struct Code {
    challenge: String,
    nonce: String,
    back: String,
}

type Spoil = Arc<dyn Fn(&mut Value) + Send + Sync>;
type Mint = Arc<dyn Fn(&Signer, &Value) -> String + Send + Sync>;

struct State {
    root: String,
    person: Value,
    signer: Arc<Signer>,
    listed: Vec<Value>,
    codes: HashMap<String, Code>,
    made: usize,
    spoil: Option<Spoil>,
    mint: Option<Mint>,
    instead: HashMap<String, Answer>,
    complaints: Vec<String>,
}

/// A provider that listens.
pub struct IdentityProvider {
    receiver: Receiver,
    state: Arc<Mutex<State>>,
}

fn json_answer(status: u16, body: &Value) -> Answer {
    Answer::from(status).header("content-type", "application/json").body(body.to_string())
}

fn fields(text: &str) -> HashMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

impl Default for IdentityProvider {
    fn default() -> Self {
        Self::start()
    }
}

impl IdentityProvider {
    /// One that logs in `jo`, of the group `ops`, with RS256.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1")
    }

    /// The same under another name of this machine, which browsers take for another site.
    pub fn start_at(host: &str) -> Self {
        let signer = Arc::new(Signer::new(Signs::Rs256, "first"));
        let person = json!({"sub": "u-1", "email": "jo@example.com", "groups": ["ops"]});
        let state = State {
            root: String::new(),
            person,
            listed: vec![signer.jwk()],
            signer,
            codes: HashMap::new(),
            made: 0,
            spoil: None,
            mint: None,
            instead: HashMap::new(),
            complaints: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let own = Arc::clone(&state);
        let receiver = Receiver::scripted(move |request: &Request| own.lock().answer(request));
        state.lock().root = receiver.url("").replace("127.0.0.1", host);
        Self { receiver, state }
    }

    /// As it names itself.
    pub fn issuer(&self) -> String {
        self.state.lock().root.clone()
    }

    /// From now on it logs in somebody with these claims.
    pub fn logs_in(&self, person: Value) {
        self.state.lock().person = person;
    }

    /// From now on the claims of tokens are changed like this before they are signed.
    pub fn spoil(&self, spoil: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.state.lock().spoil = Some(Arc::new(spoil));
    }

    /// From now on tokens are made like this.
    pub fn mint(&self, mint: impl Fn(&Signer, &Value) -> String + Send + Sync + 'static) {
        self.state.lock().mint = Some(Arc::new(mint));
    }

    /// From now on a path is answered like this.
    pub fn answers(&self, path: &str, answer: impl Into<Answer>) {
        self.state.lock().instead.insert(path.to_owned(), answer.into());
    }

    /// As if nothing had been said about what goes wrong.
    pub fn behaves(&self) {
        let mut state = self.state.lock();
        (state.spoil, state.mint) = (None, None);
        state.instead.clear();
    }

    /// From now on it signs with a new key; only that one is listed.
    pub fn rotates(&self, signs: Signs, kid: &str) {
        let signer = Arc::new(Signer::new(signs, kid));
        let mut state = self.state.lock();
        state.listed = vec![signer.jwk()];
        state.signer = signer;
    }

    /// The keys that it lists.
    pub fn keys(&self) -> Value {
        json!({"keys": self.state.lock().listed})
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        let seen = self.receiver.seen();
        seen.iter().filter(|one| one.path.split('?').next() == Some(path)).count()
    }

    /// Everything that came.
    pub fn heard(&self) -> String {
        self.receiver.heard()
    }

    /// What clients did wrong.
    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().complaints.clone()
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if let Some(answer) = self.instead.get(path) {
            return answer.clone();
        }
        match (request.method.as_str(), path) {
            ("GET", "/.well-known/openid-configuration") => {
                let at = |path: &str| format!("{}{path}", self.root);
                let discovery = json!({
                    "issuer": self.root, "authorization_endpoint": at("/authorize"),
                    "token_endpoint": at("/token"), "jwks_uri": at("/keys"),
                    "response_types_supported": ["code"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                });
                json_answer(200, &discovery)
            }
            ("GET", "/keys") => {
                // Others have keys that are for something else, or of kinds that not everybody knows.
                let mut keys = vec![
                    json!({"kty": "RSA", "use": "enc", "kid": "first", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB"}),
                    json!({"kty": "quantum", "kid": "future"}),
                ];
                keys.extend(self.listed.iter().cloned());
                json_answer(200, &json!({"keys": keys}))
            }
            ("GET", "/authorize") => self.authorize(&fields(query)),
            ("POST", "/token") => {
                let result = self.token(request);
                result.unwrap_or_else(|why| {
                    self.complaints.push(why.to_owned());
                    let body = json!({"error": "invalid_grant", "error_description": why});
                    json_answer(400, &body)
                })
            }
            _ => 404.into(),
        }
    }

    /// Whoever comes is logged in, and sent back.
    fn authorize(&mut self, fields: &HashMap<String, String>) -> Answer {
        let get = |name: &str| fields.get(name).map_or("", String::as_str);
        let back = get("redirect_uri");
        let known = back.starts_with("http://127.0.0.1:")
            && back.ends_with("/console/login/oidc/callback")
            && get("client_id") == CLIENT_ID;
        let asks = get("response_type") == "code"
            && get("code_challenge_method") == "S256"
            && get("code_challenge").len() == 43
            && get("nonce").len() >= 16
            && get("state").len() >= 16
            && get("scope").split(' ').any(|scope| scope == "openid");
        if !known || !asks {
            self.complaints.push(format!("a login that asks {fields:?}"));
            return Answer::from(400).body("not like this");
        }
        self.made += 1;
        let code = format!("code-{}", self.made);
        let (challenge, nonce) = (get("code_challenge").to_owned(), get("nonce").to_owned());
        self.codes.insert(code.clone(), Code { challenge, nonce, back: back.to_owned() });
        let place = format!("{back}?code={code}&state={}", get("state"));
        Answer::from(302).header("location", &place)
    }

    fn token(&mut self, request: &Request) -> Result<Answer, &'static str> {
        let form = String::from_utf8_lossy(&request.body).into_owned();
        let fields = fields(&form);
        let get = |name: &str| fields.get(name).map_or("", String::as_str);
        let part =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", part(CLIENT_ID), part(CLIENT_SECRET));
        let wanted = format!("Basic {}", STANDARD.encode(pair));
        if request.header("authorization") != Some(wanted.as_str()) {
            return Err("the client is not known");
        }
        if get("grant_type") != "authorization_code" {
            return Err("not this grant");
        }
        let code = self.codes.remove(get("code")).ok_or("the code is unknown, or was used")?;
        let hash = digest::digest(&digest::SHA256, get("code_verifier").as_bytes());
        if URL_SAFE_NO_PAD.encode(hash) != code.challenge {
            return Err("the verifier is not that of the challenge");
        }
        if get("redirect_uri") != code.back {
            return Err("another redirect_uri");
        }
        let now = since_1970().as_secs();
        let mut claims = json!({
            "iss": self.root, "aud": CLIENT_ID, "azp": CLIENT_ID, "nonce": code.nonce,
            "iat": now, "exp": now + 300,
        });
        for (name, value) in self.person.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        if let Some(spoil) = &self.spoil {
            spoil(&mut claims);
        }
        let token = match &self.mint {
            Some(mint) => mint(&self.signer, &claims),
            None => self.signer.token(&claims),
        };
        let body = json!({"access_token": "of no use", "token_type": "Bearer", "id_token": token});
        Ok(json_answer(200, &body))
    }
}

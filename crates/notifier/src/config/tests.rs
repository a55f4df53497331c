use posthorn_domain::policy::{Auth, Backoff};

use super::*;

fn no_env(_: &str) -> Option<String> {
    None
}

#[track_caller]
fn checked(yaml: &str) -> Callbacks {
    let config = CallbacksConfig::from_yaml(yaml).expect("reads");
    config.check_with(&no_env).expect("is right").expect("has a URL")
}

/// Reads a block without a URL of its own and gives it one.
#[track_caller]
fn with_url(yaml: &str) -> Callbacks {
    let mut config = CallbacksConfig::from_yaml(yaml).expect("reads");
    config.payment_success_url = Some("https://api.example.com/".to_owned());
    config.check_with(&no_env).expect("is right").expect("has a URL")
}

#[track_caller]
fn refused(yaml: &str, key: &str, words: &str) {
    let error = match CallbacksConfig::from_yaml(yaml) {
        Ok(config) => config.check_with(&no_env).expect_err("is refused").to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(key), "{error} names {key}");
    assert!(error.contains(words), "{error} says {words}");
}

/// Waits between attempts, in seconds.
fn waits(policy: &Policy) -> Vec<f64> {
    let began = posthorn_domain::Timestamp::from_millis(0);
    let mut waits = Vec::new();
    for done in 1.. {
        match policy.schedule.next(done, began, began, None, 0) {
            Some(due) => waits.push(due.as_millis() as f64 / 1_000.0),
            None => return waits,
        }
    }
    waits
}

#[test]
fn the_reference_block_loads_as_it_is_written() {
    let callbacks = checked(
        r#"
callbacks:
  payment_success_url: "https://api.example.com/webhooks/payment"
  headers:
    Authorization: "Bearer secret_token"
    X-Custom-Header: "value"
  timeout: 10s
  retry:
    enabled: true
    max_attempts: 5
    initial_interval: 1s
    max_interval: 5m
    multiplier: 2.0
  dlq_enabled: true
  dlq_path: "./data/webhook-dlq.json"
"#,
    );
    assert_eq!(callbacks.url, "https://api.example.com/webhooks/payment");
    assert_eq!(waits(&callbacks.policy), [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(callbacks.policy.limits.connect, Span::from_secs(5));
    assert_eq!(callbacks.policy.limits.total, Span::from_secs(10));
    assert_eq!(callbacks.dlq_path, Some("./data/webhook-dlq.json".into()));
    assert_eq!(callbacks.backend, Backend::Memory);
    let headers: Vec<&str> = callbacks
        .policy
        .auth
        .iter()
        .map(|auth| match auth {
            Auth::SecretHeader { header, .. } => header.as_str(),
            other => panic!("{other:?} is not a header"),
        })
        .collect();
    assert_eq!(headers, ["Authorization", "X-Custom-Header"]);
    assert!(!callbacks.overrides.to_string().contains("secret_token"), "kept as a secret");
    assert!(!format!("{callbacks:?}").contains("secret_token"), "not in logs");
}

#[test]
fn an_empty_block_has_the_defaults_and_is_off() {
    let config = CallbacksConfig::from_yaml("callbacks:\n").expect("reads");
    assert!(config.check_with(&no_env).expect("is right").is_none());
    let config = CallbacksConfig::from_yaml("storage: {}\n").expect("reads");
    assert!(config.check_with(&no_env).expect("is right").is_none());
    let callbacks = checked("callbacks: {payment_success_url: 'https://a.example/'}\n");
    assert_eq!(waits(&callbacks.policy), [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(callbacks.policy.limits.total, Span::from_secs(10));
    assert!(callbacks.policy.auth.is_empty() && callbacks.secrets.is_empty());
    assert_eq!(callbacks.dlq_path, None);
    assert_eq!(callbacks.topic.as_str(), "payments");
}

#[test]
fn the_recommended_configurations_load_and_wait_as_they_say() {
    let high = with_url(
        "
callbacks:
  backend: postgres
  retry:
    max_attempts: 7
    initial_interval: 500ms
    max_interval: 2m
    multiplier: 1.5
  poll_interval: 2s
",
    );
    assert_eq!(waits(&high.policy), [0.5, 0.75, 1.125, 1.688, 2.531, 3.797]);
    assert_eq!(high.backend, Backend::Postgres);
    assert_eq!(high.poll_interval, Some(Span::from_secs(2)));
    let low = with_url(
        "
callbacks:
  backend: memory
  retry:
    max_attempts: 5
    initial_interval: 1s
  dlq_enabled: true
",
    );
    assert_eq!(waits(&low.policy), [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(low.dlq_path, Some(DLQ_PATH_DEFAULT.into()));
    let strict = with_url(
        "
callbacks:
  backend: postgres
  dlq_enabled: true
  retry:
    max_attempts: 7
    initial_interval: 250ms
    max_interval: 10m
  poll_interval: 1s
",
    );
    assert_eq!(waits(&strict.policy), [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]);
}

#[test]
fn one_attempt_when_retries_are_off() {
    let callbacks = with_url("callbacks: {retry: {enabled: false, max_attempts: 9}}\n");
    assert!(waits(&callbacks.policy).is_empty());
}

#[test]
fn waits_never_exceed_the_longest() {
    let yaml = "callbacks: {retry: {max_attempts: 12, initial_interval: 1s, max_interval: 5s}}\n";
    let callbacks = with_url(yaml);
    assert_eq!(waits(&callbacks.policy), [1., 2., 4., 5., 5., 5., 5., 5., 5., 5., 5.]);
    assert!(matches!(callbacks.policy.schedule.backoff, Backoff::Exponential { .. }));
}

#[test]
fn the_secret_signs_the_body_and_short_ones_are_warned_of() {
    let long = "0123456789abcdef0123456789abcdef";
    let callbacks = with_url(&format!("callbacks: {{hmac_secret: {long:?}}}\n"));
    assert!(callbacks.warnings.is_empty());
    let [Auth::HmacHeader(scheme)] = &callbacks.policy.auth[..] else { panic!("one scheme") };
    assert_eq!(scheme.header, "X-Cedros-Signature");
    assert_eq!(scheme.format, "sha256={signature}");
    assert_eq!(callbacks.secrets[0].value, long);
    let short = with_url("callbacks: {hmac_secret: your-secret-key-here}\n");
    assert!(short.warnings[0].contains("fewer than 32"), "{:?}", short.warnings);
    assert!(!short.warnings[0].contains("your-secret"), "without showing it");
    let none = with_url("callbacks: {hmac_secret: ''}\n");
    assert!(none.policy.auth.is_empty(), "nothing set means nothing signed");
}

#[test]
fn secrets_may_be_kept_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "from a file\n").expect("written");
    let mut config = CallbacksConfig::from_yaml(&format!(
        "callbacks:\n  payment_success_url: https://a.example/\n  hmac_secret: env:HMAC\n  headers:\n    \
         Authorization: file:{}\n    X-Number: 7\n",
        file.display()
    ))
    .expect("reads");
    let env = |name: &str| (name == "HMAC").then(|| "from the environment".to_owned());
    let callbacks = config.check_with(&env).expect("is right").expect("has a URL");
    let values: Vec<&str> = callbacks.secrets.iter().map(|s| s.value.as_str()).collect();
    assert_eq!(values, ["from the environment", "from a file", "7"]);
    let error = config.check_with(&no_env).expect_err("not set");
    assert_eq!(error.key, "callbacks.hmac_secret");
    assert!(error.problem.contains("HMAC is not set"), "{error}");
    config.hmac_secret = None;
    config.headers.insert("X-B".to_owned(), SecretText::new("file:/nowhere/at/all"));
    let error = config.check_with(&no_env).expect_err("not there");
    assert_eq!(error.key, "callbacks.headers.X-B");
}

#[test]
fn the_media_type_is_a_default_that_a_header_overrides() {
    let callbacks = with_url(
        "callbacks: {headers: {content-type: application/cloudevents+json, X-Empty: ''}}\n",
    );
    assert_eq!(
        callbacks.policy.request.content_type.as_deref(),
        Some("application/cloudevents+json")
    );
    assert!(callbacks.policy.request.headers.contains_key("X-Empty"));
    assert!(callbacks.policy.request.headers.contains_key("X-Cedros-Timestamp"), "besides its own");
}

#[test]
fn the_environment_wins_over_the_file() {
    let config = CallbacksConfig::from_yaml(
        "callbacks: {payment_success_url: 'https://a.example/', timeout: 3s, headers: {x-api-key: a}}\n",
    )
    .expect("reads");
    let variables = [
        ("CALLBACK_PAYMENT_SUCCESS_URL", "https://b.example/"),
        ("CALLBACK_TIMEOUT", "1.5s"),
        ("CALLBACK_HEADER_X_API_KEY", "b"),
        ("CALLBACK_HEADER_AUTHORIZATION", ""),
        ("CALLBACK_UNRELATED", "x"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = config.with_env(variables).expect("fits");
    let callbacks = config.check_with(&no_env).expect("is right").expect("has a URL");
    assert_eq!(callbacks.url, "https://b.example/");
    assert_eq!(callbacks.policy.limits.total, Span::from_millis(1_500));
    assert_eq!(callbacks.secrets.len(), 1, "the same header in another spelling");
    assert_eq!(callbacks.secrets[0].value, "b");
    let bad = [("CALLBACK_TIMEOUT".to_owned(), "soon".to_owned())];
    let error = CallbacksConfig::default().with_env(bad).expect_err("no duration");
    assert_eq!(error.key, "CALLBACK_TIMEOUT");
}

#[test]
fn no_mistake_makes_a_secret_appear() {
    let secret = "5ecret-of-the-canary";
    for yaml in [
        format!("callbacks:\n  hmac_secret: {secret}\n  timeout: [\n"),
        format!("callbacks:\n  hmac_secret: {secret}\n bad\n"),
        format!("callbacks:\n  hmac_secret: {secret}\n  timeout: soon\n"),
        format!("callbacks:\n  hmac_secret: [{secret}]\n"),
        format!("callbacks:\n  headers: {secret}\n"),
        format!("callbacks:\n  headers: [{secret}]\n"),
        format!("callbacks:\n  headers: {{Authorization: [{secret}]}}\n"),
        format!("callbacks:\n  headers: {{Authorization: {secret}}}\n  unknown: 1\n"),
        format!("callbacks:\n  headers: {{Authorization: {secret}}}\n  retry: 3\n"),
        format!("callbacks:\n  headers: {{Authorization: \"{secret}\\n\"}}\n"),
    ] {
        let error = match CallbacksConfig::from_yaml(&yaml) {
            Ok(config) => config.check_with(&no_env).expect_err(&yaml).to_string(),
            Err(error) => error.to_string(),
        };
        assert!(!error.contains(secret), "{yaml}\n{error}");
    }
}

#[test]
fn a_long_timeout_is_covered_by_the_lease() {
    let callbacks = with_url("callbacks: {timeout: 9m}\n");
    assert_eq!(callbacks.policy.limits.total, Span::from_secs(540));
    assert!(callbacks.policy.lease.time > callbacks.policy.limits.total);
}

#[test]
fn what_is_wrong_is_named_with_its_key() {
    refused("callbacks: {payment_sucess_url: x}\n", "payment_sucess_url", "unknown field");
    refused("callbacks: {retry: {jitter: 0.2}}\n", "jitter", "unknown field");
    refused("callbacks: {timeout: soon}\n", "callbacks", "is not a duration");
    refused("callbacks: {timeout: 0s}\n", "callbacks.timeout", "more than zero");
    refused("callbacks: {timeout: 1h}\n", "callbacks.timeout", "at most 10m");
    refused("callbacks: {backend: redis}\n", "redis", "memory");
    refused(
        "callbacks: {retry: {max_attempts: 0}}\n",
        "callbacks.retry.max_attempts",
        "at least 1",
    );
    refused("callbacks: {retry: {max_attempts: 5000}}\n", "callbacks.retry.max_attempts", "1000");
    refused("callbacks: {retry: {multiplier: 0.5}}\n", "callbacks.retry.multiplier", "1 to 100");
    refused("callbacks: {retry: {multiplier: .nan}}\n", "callbacks", "");
    refused(
        "callbacks: {retry: {initial_interval: 0s}}\n",
        "callbacks.retry.initial_interval",
        "more than zero",
    );
    refused(
        "callbacks: {retry: {initial_interval: 2s, max_interval: 1s}}\n",
        "callbacks.retry.max_interval",
        "initial_interval",
    );
    refused("callbacks: {headers: {Host: x}}\n", "callbacks.headers.Host", "reserved");
    refused("callbacks: {headers: {'a b': x}}\n", "callbacks.headers.a b", "header name");
    refused(
        "callbacks: {headers: {x-cedros-signature: x}}\n",
        "callbacks.headers.x-cedros-signature",
        "for each webhook",
    );
    refused("callbacks: {headers: {A: 1, a: 2}}\n", "callbacks.headers", "also sets");
    refused("callbacks: {topic: 'a b'}\n", "callbacks.topic", "topic");
    refused(
        "callbacks: {payment_success_url: 'https://a.example/', poll_interval: 0s}\n",
        "callbacks.poll_interval",
        "more than zero",
    );
}

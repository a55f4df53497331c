//! What the failures of attempts, the statuses of answers, the ends of deliveries and their waiting mean, and what to
//! do about them: one text for the API (`explain` of a timeline) and the command line (`posthorn explain`).
//!
//! Each list is made by a `match` over the type, so that none can be forgotten.

use posthorn_domain::{CancelReason, DeadReason, DeliveryState, FailureCode, WaitReason};

/// One word that the API, the CLI and metrics use, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The word.
    pub code: &'static str,
    /// What it is a word for.
    pub kind: ReasonKind,
    /// What happened.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKind {
    /// `failure` of an attempt.
    Failure,
    /// `status` of an attempt: one of them, or a class.
    Status,
    /// `reason` of a delivery that is `dead`.
    Dead,
    /// `reason` of a delivery that is `cancelled`.
    Cancelled,
    /// `waiting.reason` of a delivery, or of a subscription.
    Waiting,
}

impl ReasonKind {
    /// For JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Status => "status",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Waiting => "waiting",
        }
    }

    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Failure => "failure of an attempt",
            Self::Status => "status of an attempt",
            Self::Dead => "reason of a dead letter",
            Self::Cancelled => "reason of a cancelled delivery",
            Self::Waiting => "why a delivery waits",
        }
    }
}

/// All of them.
pub fn reasons() -> Vec<Reason> {
    let failures = FailureCode::ALL.into_iter().map(Reason::of_failure);
    let dead = DeadReason::ALL.into_iter().map(Reason::of_death);
    let cancelled = CancelReason::ALL.into_iter().map(Reason::of_cancellation);
    let waiting = WaitReason::ALL.into_iter().map(Reason::of_waiting);
    let ended = dead.chain(cancelled);
    failures.chain(STATUSES).chain(ended).chain(waiting).collect()
}

impl Reason {
    /// Why an attempt got no answer.
    pub fn of_failure(code: FailureCode) -> Self {
        let (meaning, remedy) = of_failure(code);
        Self { code: code.as_str(), kind: ReasonKind::Failure, meaning, remedy }
    }

    /// What an answer with this status means: the status itself where it is explained, else its class.
    pub fn of_status(status: u16) -> Option<Self> {
        let exactly = status.to_string();
        let class = format!("{}xx", status / 100);
        let find = |wanted: &str| STATUSES.into_iter().find(|reason| reason.code == wanted);
        find(&exactly).or_else(|| find(&class))
    }

    /// Why a delivery ended, if that needs a reason.
    pub fn of_end(state: DeliveryState) -> Option<Self> {
        match state {
            DeliveryState::Dead(reason) => Some(Self::of_death(reason)),
            DeliveryState::Cancelled(reason) => Some(Self::of_cancellation(reason)),
            _ => None,
        }
    }

    /// Why a delivery waits.
    pub fn of_waiting(reason: WaitReason) -> Self {
        let (meaning, remedy) = of_waiting(reason);
        Self { code: reason.as_str(), kind: ReasonKind::Waiting, meaning, remedy }
    }

    fn of_death(reason: DeadReason) -> Self {
        let (code, meaning, remedy) = of_death(reason);
        Self { code, kind: ReasonKind::Dead, meaning, remedy }
    }

    fn of_cancellation(reason: CancelReason) -> Self {
        let (code, meaning, remedy) = of_cancellation(reason);
        Self { code, kind: ReasonKind::Cancelled, meaning, remedy }
    }
}

/// Statuses that mean something of their own, and the classes of the others.
const STATUSES: [Reason; 6] = [
    status(
        "2xx",
        "The receiver accepted the request. policy.success sets which statuses count as success.",
        "Nothing.",
    ),
    status(
        "3xx",
        "The receiver answered with a redirect. Posthorn does not follow redirects, so this is a \
         failure, unless policy.success names the status.",
        "Change the URL of the subscription to the one the receiver redirects to.",
    ),
    status(
        "4xx",
        "The receiver refused the request. policy.permanent sets which statuses end the delivery \
         at once; all others are tried again.",
        "Look at `response` of the attempt. Check the URL, the secrets and the format that the \
         receiver expects.",
    ),
    status(
        "410",
        "The receiver says that it no longer exists at this URL. policy.permanent.gone sets what \
         happens then; by default, the subscription is disabled and its deliveries are kept.",
        "Change the URL, then run `posthorn subscriptions resume ID`; or delete the subscription.",
    ),
    status(
        "429",
        "The receiver gets more requests than it wants. Posthorn makes fewer at once, and waits if \
         the receiver sent a Retry-After header.",
        "Nothing, or set policy.limits.rate to what the receiver allows.",
    ),
    status(
        "5xx",
        "The receiver, or a proxy before it, failed to handle the request.",
        "Look at `response` of the attempt and at the receiver's log. The delivery is tried again \
         by its schedule, unless policy.permanent names the status.",
    ),
];

const fn status(code: &'static str, meaning: &'static str, remedy: &'static str) -> Reason {
    Reason { code, kind: ReasonKind::Status, meaning, remedy }
}

const fn of_waiting(reason: WaitReason) -> (&'static str, &'static str) {
    match reason {
        WaitReason::Schedule => (
            "The next attempt is not due yet. policy.schedule sets the time; `until` is the due \
             time.",
            "Nothing, or retry it now: `posthorn deliveries retry ID`. `posthorn deliveries show \
             ID` shows why the last attempt failed.",
        ),
        WaitReason::Scheduled => (
            "The event was published with deliver_at. Its deliveries start at `until`; an ordered \
             one joins its lane then, behind those that are in it.",
            "Nothing: the publisher asked for this. To prevent the delivery, cancel it: `posthorn \
             deliveries cancel ID`.",
        ),
        WaitReason::RetryAfter => (
            "The receiver sent a Retry-After header. All deliveries of the subscription wait \
             until `until`.",
            "Nothing: the receiver asked for this. policy.schedule.retry_after sets whether \
             Retry-After is honoured, and the longest wait.",
        ),
        WaitReason::Lane => (
            "policy.order is on, and an older delivery in the same lane has not ended.",
            "Find out why the oldest delivery of the lane fails: `posthorn deliveries list \
             --state pending`. Fix its receiver, or cancel the delivery so that the others can \
             go: `posthorn deliveries cancel ID`.",
        ),
        WaitReason::Rate => (
            "The subscription reached its rate limit, policy.limits.rate. The next call may start \
             at `until`.",
            "Nothing, or raise limits.rate if the receiver can take more.",
        ),
        WaitReason::TenantRate => (
            "The tenant reached its limit of attempts per second (deliveries_per_second of the tenant, \
             or of its realm). Its subscriptions take turns; the next attempt may start at `until`.",
            "Nothing, or raise the limit: `posthorn tenants update ID --deliveries-per-second N` (operators).",
        ),
        WaitReason::Concurrency => (
            "The subscription has reached its limit of concurrent calls: \
             policy.limits.concurrency, or fewer while the receiver is overloaded.",
            "A receiver that answers faster gets more calls. Raise limits.concurrency if it can \
             take more at once.",
        ),
        WaitReason::Spacing => (
            "policy.spacing requires a pause between two attempts with the same key; `until` is \
             the end of the pause.",
            "Nothing, or make spacing shorter. After a restart, every key waits for one full \
             pause.",
        ),
        WaitReason::Gate => (
            "The gate of the policy was closed, and policy.gate.on_closed is postpone. The gate \
             is checked again at `until`. This does not count as an attempt.",
            "Open the gate: policy.gate.url must answer as policy.gate.status and expect require.",
        ),
        WaitReason::Breaker => (
            "The breaker is open: several calls of this receiver in a row hung or timed out, or \
             the token or mailbox they need was not available. At `until`, one call tests whether \
             the receiver works again.",
            "Look at the last attempts: `posthorn deliveries list --subscription ID`. The first \
             success closes the breaker. policy.breaker sets when it opens.",
        ),
        WaitReason::Paused => (
            "Its subscription is paused. Paused time does not count toward the age of the \
             delivery.",
            "Resume the subscription: `posthorn subscriptions resume ID`.",
        ),
        WaitReason::Disabled => (
            "Its subscription is disabled: the receiver answered 410 Gone, failed for too long \
             without a success, or failed in a way that disables under this policy. Pending \
             deliveries are kept.",
            "`posthorn subscriptions show ID` shows why. Fix the receiver or the URL, then run \
             `posthorn subscriptions resume ID`.",
        ),
        WaitReason::Quota => (
            "All slots for attempts are in use, or all slots of its tenant; or the machine is \
             busy and the receiver fails, so other deliveries go first.",
            "Look for slow receivers: `posthorn deliveries list --state pending`. Operators can \
             raise engine.slots.",
        ),
        WaitReason::Hold => (
            "The server was started on hold (`posthorn serve --hold`): it accepts events and sends \
             nothing.",
            "Let it go on: `posthorn resume`. What is due is sent then.",
        ),
    }
}

const fn of_death(reason: DeadReason) -> (&'static str, &'static str, &'static str) {
    match reason {
        DeadReason::Exhausted => (
            "exhausted",
            "All attempts of its schedule were made, and none succeeded.",
            "Look at the attempts: `posthorn dead-letters show ID`. When the receiver works \
             again: `posthorn dead-letters retry ID`, or `posthorn redrives create` for \
             many.",
        ),
        DeadReason::Permanent => (
            "permanent",
            "The receiver's answer says that a retry is pointless, or the request can never be sent \
             (its URL is refused, or its family has no path).",
            "Look at the last attempt: `posthorn dead-letters show ID`. Fix the receiver, the URL \
             or the policy (policy.permanent sets which answers count so), then retry it.",
        ),
        DeadReason::Gate => (
            "gate",
            "Its gate was closed, and its policy says not to wait for it. Nothing was sent.",
            "Open the gate, then run `posthorn redrives create --reason gate`. To wait for \
             the gate in future, set policy.gate.on_closed to postpone.",
        ),
        DeadReason::Expired => (
            "expired",
            "The delivery became too old before an attempt succeeded.",
            "Raise policy.schedule.max_age if receivers are down for longer than that. Retry the delivery: its \
             age then counts from zero again.",
        ),
    }
}

const fn of_cancellation(reason: CancelReason) -> (&'static str, &'static str, &'static str) {
    match reason {
        CancelReason::Unsubscribed => (
            "unsubscribed",
            "Its subscription was deleted before the delivery had ended.",
            "Nothing, if that was intended. Otherwise create the subscription again and republish \
             the event: `posthorn events republish ID`.",
        ),
        CancelReason::Operator => (
            "operator",
            "Someone cancelled the delivery through the API or the CLI.",
            "Nothing, if that was intended. Otherwise: `posthorn deliveries retry ID`.",
        ),
        CancelReason::Dropped => (
            "dropped",
            "All attempts failed, or the failure was permanent, and the policy keeps no dead \
             letter (on_exhausted or on_permanent is drop).",
            "To keep such deliveries, set on_exhausted or on_permanent to dead_letter. `posthorn \
             deliveries retry ID` retries this one.",
        ),
    }
}

const fn of_failure(code: FailureCode) -> (&'static str, &'static str) {
    match code {
        FailureCode::UrlNotAllowed => (
            "Posthorn may not send requests to the URL of the subscription. Nothing was sent.",
            "Correct the URL. Operators: `posthorn check url -- URL` shows which rule refuses it.",
        ),
        FailureCode::UrlRefused => (
            "A rule of the policy (policy.url) refuses the URL. Nothing was sent.",
            "Correct the URL, or change policy.url: https_only, query, resolve.",
        ),
        FailureCode::DnsFailed => (
            "The host of the URL has no address, its name servers returned an error, or it \
             resolves to an address that is not allowed. Tenants are not told which.",
            "Look up the name on the server's machine. Correct the URL or the DNS records. \
             Operators see the exact code with their own key.",
        ),
        FailureCode::DnsTimeout => (
            "The DNS lookup of the URL's host timed out.",
            "Check the name servers. policy.limits.connect is the timeout for lookup and \
             connection together.",
        ),
        FailureCode::AddressNotAllowed => (
            "The host of the URL resolves to an address that is not allowed: a private one, or \
             one that the operator denied. Nothing was sent.",
            "Use a public address. Operators: allow your own networks with egress.allow; see \
             docs/guide/receivers.md.",
        ),
        FailureCode::ConnectFailed => (
            "The connection was refused, or there is no route to the address.",
            "Check that the receiver is up and listens on this port, and that no firewall blocks \
             the connection.",
        ),
        FailureCode::ConnectTimeout => (
            "The connection was not established within policy.limits.connect.",
            "Check that the receiver is up and that no firewall drops the packets. Raise the \
             limit if the network is slow.",
        ),
        FailureCode::ProxyFailed => (
            "The proxy that policy.proxy names could not be reached, refused the connection, or \
             could not connect to the receiver.",
            "Operators: look at `detail` of the attempt, the proxy's log, and egress.proxies in \
             the configuration.",
        ),
        FailureCode::TlsCertificateInvalid => (
            "The receiver's certificate has expired or is not valid yet, is for another name, or \
             is not signed by a trusted authority. Nothing was sent.",
            "Renew the certificate, and install it with its whole chain. For your own certificate \
             authority, set policy.tls.authorities, or egress.extra_roots of the server.",
        ),
        FailureCode::TlsFailed => (
            "The TLS handshake failed: there is no common version or cipher, or the receiver \
             refused it, often because it requires a client certificate.",
            "Look at `detail` of the attempt and at the receiver's log. To send a client \
             certificate, use client_certificate in policy.auth.",
        ),
        FailureCode::TlsTimeout => (
            "The TLS handshake did not finish within policy.limits.tls.",
            "Check whether the receiver is overloaded, and whether the port speaks TLS.",
        ),
        FailureCode::ResponseTimeout => (
            "The request was sent, but no response came within policy.limits.response. The \
             receiver may have processed it anyway.",
            "The receiver should answer first and process afterwards. It should drop repeats by \
             the event's id.",
        ),
        FailureCode::AttemptTimeout => (
            "The whole attempt took longer than policy.limits.total. The receiver may have \
             processed it anyway.",
            "The receiver should answer first and process afterwards. Or raise the limit (with \
             lease.time).",
        ),
        FailureCode::ConnectionClosed => (
            "The connection was closed before a response came. The receiver may have processed \
             the request anyway.",
            "Look in the receiver's log for a crash or a restart, and check the timeouts of \
             proxies in between.",
        ),
        FailureCode::ProtocolError => (
            "The response is not valid HTTP.",
            "Check that an HTTP server listens on the port. An https URL with a port that speaks \
             http also fails this way.",
        ),
        FailureCode::ResponseHeadTooLarge => (
            "The headers of the response are larger than Posthorn accepts.",
            "Make the receiver send fewer or shorter headers.",
        ),
        FailureCode::RequestInvalid => (
            "The request could not be built: a template has no value for this event, a header is \
             not valid, or a secret has the wrong form. Nothing was sent.",
            "`detail` of the attempt says what is wrong. Correct the policy, or publish events \
             that contain what it needs.",
        ),
        FailureCode::FamilyNotRouted => (
            "policy.request.families has no path for events of this family (the type up to its first \
             dot), or has switched it off. Nothing was sent.",
            "Give the family a path, or use `\"*\"` for all other families, then retry. A family \
             that is `off` gets no deliveries at all.",
        ),
        FailureCode::AuthUnavailable => (
            "A secret that policy.auth names is missing or cannot be decrypted. Nothing was sent.",
            "Give the subscription the secret: `posthorn subscriptions update ID --secret \
             NAME=VALUE`. If it cannot be decrypted, the seal key is not the one it was sealed \
             with.",
        ),
        FailureCode::CertificateUnavailable => (
            "The client certificate that policy.auth requires is missing, revoked, expired, not \
             valid yet, or its key cannot be decrypted. Nothing was sent.",
            "`posthorn certificates list` shows all certificates. Rotate it, or add a new one.",
        ),
        FailureCode::TokenUnavailable => (
            "The token server that policy.auth names returned no token. Nothing was sent.",
            "`detail` of the attempt shows its response. Check token_url, client_id and the \
             secret.",
        ),
        FailureCode::MessageTooLarge => (
            "The event does not fit into a push message, which is limited to 4,096 bytes. Nothing was \
             sent.",
            "Publish a smaller payload, and let the agent fetch the rest.",
        ),
        FailureCode::PushUnavailable => (
            "The message could not be stored in the agent's mailbox. This is a problem of the \
             server and does not count as an attempt.",
            "Operators: check the log, the store, and that push.enabled is set on this node.",
        ),
        FailureCode::Internal => (
            "The attempt crashed. This is a defect in Posthorn, not the receiver's fault.",
            "Please report it with the log lines of that time.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_end_and_wait_is_explained_under_its_own_name() {
        let all = reasons();
        let find = |kind, code: &str| {
            let mut found = all.iter().filter(|r| r.kind == kind && r.code == code);
            assert!(found.next().is_some() && found.next().is_none(), "{code}");
        };
        for code in FailureCode::ALL {
            find(ReasonKind::Failure, code.as_str());
        }
        let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        for reason in DeadReason::ALL {
            find(ReasonKind::Dead, &name(serde_json::to_value(reason).expect("a text")));
        }
        for reason in CancelReason::ALL {
            find(ReasonKind::Cancelled, &name(serde_json::to_value(reason).expect("a text")));
        }
        for reason in WaitReason::ALL {
            find(ReasonKind::Waiting, reason.as_str());
        }
        for reason in &all {
            let whole =
                |text: &str| text.ends_with(['.', '?']) && (text.len() > 20 || text == "Nothing.");
            assert!(whole(reason.meaning) && whole(reason.remedy), "{}", reason.code);
        }
    }
    #[test]
    fn a_status_is_explained_by_itself_or_by_its_class() {
        let code = |status| Reason::of_status(status).map(|reason| reason.code);
        let all = [200, 204, 302, 404, 410, 429, 503].map(code);
        let expected = ["2xx", "2xx", "3xx", "4xx", "410", "429", "5xx"].map(Some);
        assert_eq!(all, expected);
        assert_eq!((code(101), code(700)), (None, None));
    }
}

//! What the failures of attempts, the ends of deliveries and their waiting mean, and what to do about them.
//!
//! Each list is made by a `match` over the type, so that none can be forgotten.

use posthorn_domain::{CancelReason, DeadReason, FailureCode, WaitReason};

/// One word that the API, the CLI and metrics use, explained.
pub(super) struct Reason {
    /// The word.
    pub(super) code: &'static str,
    /// What it is a word for.
    pub(super) kind: Kind,
    /// What happened.
    pub(super) meaning: &'static str,
    /// What to do.
    pub(super) remedy: &'static str,
}

/// What a word is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `failure` of an attempt.
    Failure,
    /// `reason` of a delivery that is `dead`.
    Dead,
    /// `reason` of a delivery that is `cancelled`.
    Cancelled,
    /// `waiting.reason` of a delivery, or of a subscription.
    Waiting,
}

impl Kind {
    /// For JSON.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Waiting => "waiting",
        }
    }

    /// For people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Failure => "failure of an attempt",
            Self::Dead => "reason of a dead letter",
            Self::Cancelled => "reason of a cancelled delivery",
            Self::Waiting => "what a delivery waits for",
        }
    }
}

/// All of them.
pub(super) fn all() -> Vec<Reason> {
    let failures = FailureCode::ALL.into_iter().map(|code| {
        let (meaning, remedy) = of_failure(code);
        Reason { code: code.as_str(), kind: Kind::Failure, meaning, remedy }
    });
    let dead = DeadReason::ALL.into_iter().map(|reason| {
        let (code, meaning, remedy) = of_death(reason);
        Reason { code, kind: Kind::Dead, meaning, remedy }
    });
    let cancelled = CancelReason::ALL.into_iter().map(|reason| {
        let (code, meaning, remedy) = of_cancellation(reason);
        Reason { code, kind: Kind::Cancelled, meaning, remedy }
    });
    let waiting = WaitReason::ALL.into_iter().map(|reason| {
        let (meaning, remedy) = of_waiting(reason);
        Reason { code: reason.as_str(), kind: Kind::Waiting, meaning, remedy }
    });
    failures.chain(dead).chain(cancelled).chain(waiting).collect()
}

const fn of_waiting(reason: WaitReason) -> (&'static str, &'static str) {
    match reason {
        WaitReason::Schedule => (
            "Its time has not come: policy.schedule says when the next attempt is made; `until` is that \
             time.",
            "Nothing, or try it now: `posthorn deliveries retry ID`. `posthorn deliveries show ID` says \
             why the last attempt failed.",
        ),
        WaitReason::RetryAfter => (
            "The receiver asked for a pause with the header Retry-After. All deliveries of the \
             subscription wait for its end, `until`.",
            "Nothing: that is the receiver's wish. policy.schedule.retry_after says whether it is heeded, \
             and for how long at most.",
        ),
        WaitReason::Lane => (
            "policy.order is on, and an older delivery of the same lane has not ended.",
            "See what holds up the oldest of the lane: `posthorn deliveries list --state pending`. Mend \
             its receiver, or let the others pass it: `posthorn deliveries cancel ID`.",
        ),
        WaitReason::Rate => (
            "As many calls were begun as policy.limits.rate allows; the next may begin at `until`.",
            "Nothing, or raise limits.rate where the receiver can take more.",
        ),
        WaitReason::Concurrency => (
            "As many calls of its subscription are under way as may be: policy.limits.concurrency, or \
             fewer while the receiver is overloaded.",
            "A receiver that answers sooner takes more. Raise limits.concurrency where it can take more \
             at once.",
        ),
        WaitReason::Spacing => (
            "policy.spacing wants a rest between two attempts with the same key; `until` is its end.",
            "Nothing, or make spacing shorter. After a restart the rest is kept once for every key.",
        ),
        WaitReason::Gate => (
            "The gate of the policy was closed, and policy.gate.on_closed is postpone. It is asked again \
             at `until`; no attempt was charged.",
            "Open the gate: let policy.gate.url answer as policy.gate.status and expect say.",
        ),
        WaitReason::Breaker => (
            "The breaker is open: call after call of this receiver hung or ran into its deadline, or the \
             token or mailbox that they need cannot be had. At `until` one call tries whether that is over.",
            "See what the last attempts say: `posthorn deliveries list --subscription ID`. The first \
             success closes it. policy.breaker says when it opens.",
        ),
        WaitReason::Paused => (
            "Its subscription is paused. It does not grow older meanwhile.",
            "Let it go on: `posthorn subscriptions resume ID`.",
        ),
        WaitReason::Disabled => (
            "Its subscription is disabled: the receiver said that it is gone (410), only failed for too \
             long, or failed in a way after which the policy disables. The work is kept.",
            "`posthorn subscriptions show ID` says why. Mend the receiver or the URL, then `posthorn \
             subscriptions resume ID`.",
        ),
        WaitReason::Quota => (
            "All slots for attempts are taken, or all that its tenant may have; or the machine is busy \
             and its receiver fails, so that others go first.",
            "Look for receivers that keep us waiting: `posthorn deliveries list --state pending`. \
             Operators can raise engine.slots.",
        ),
    }
}

const fn of_death(reason: DeadReason) -> (&'static str, &'static str, &'static str) {
    match reason {
        DeadReason::Exhausted => (
            "exhausted",
            "All attempts that policy.schedule allows were made, and none had success.",
            "See what the attempts say: `posthorn dead-letters show ID`. When the receiver works \
             again: `posthorn dead-letters retry ID`, or `posthorn redrives create` for many.",
        ),
        DeadReason::Permanent => (
            "permanent",
            "The receiver answered in a way that policy.permanent takes for a final no, or the \
             request can never be made (its URL is refused, or its family has no path).",
            "See the last attempt: `posthorn dead-letters show ID`. Mend the receiver, the URL or the \
             policy, then retry it.",
        ),
        DeadReason::Gate => (
            "gate",
            "The gate of the policy was closed, and policy.gate.on_closed is dead_letter. Nothing was \
             sent.",
            "Open the gate, then redrive: `posthorn redrives create --reason gate`. To wait for \
             it in future, set on_closed to postpone.",
        ),
        DeadReason::Expired => (
            "expired",
            "The delivery grew older than policy.schedule.max_age before it had success.",
            "Raise max_age where receivers are away for longer. Retry it: that starts its age anew.",
        ),
    }
}

const fn of_cancellation(reason: CancelReason) -> (&'static str, &'static str, &'static str) {
    match reason {
        CancelReason::Unsubscribed => (
            "unsubscribed",
            "Its subscription was deleted before the delivery had ended.",
            "Nothing, if that was meant. Otherwise create the subscription again and publish the event \
             again: `posthorn events republish ID`.",
        ),
        CancelReason::Operator => (
            "operator",
            "Somebody cancelled the delivery, by the API or the CLI.",
            "Nothing, if that was meant. Otherwise: `posthorn deliveries retry ID`.",
        ),
        CancelReason::Dropped => (
            "dropped",
            "Its schedule ran out, or it was refused for good, and the policy says to keep no dead \
             letter (on_exhausted or on_permanent is drop).",
            "To keep such deliveries, set them to dead_letter. `posthorn deliveries retry ID` tries \
             this one again.",
        ),
    }
}

const fn of_failure(code: FailureCode) -> (&'static str, &'static str) {
    match code {
        FailureCode::UrlNotAllowed => (
            "The URL of the subscription is not one that requests may be sent to. Nothing was sent.",
            "Correct the URL. Operators: `posthorn check url -- URL` says which rule refuses it.",
        ),
        FailureCode::UrlRefused => (
            "A rule of the policy (policy.url) refuses the URL. Nothing was sent.",
            "Correct the URL, or change policy.url: https_only, query, resolve.",
        ),
        FailureCode::DnsFailed => (
            "The host of the URL has no address, its name servers said no, or it leads to an address that \
             receivers may not have: tenants are not told which.",
            "Look the name up from the server's machine; correct the URL or the name's records. Operators \
             see the true code with their own key.",
        ),
        FailureCode::DnsTimeout => (
            "The host of the URL could not be looked up in time.",
            "Look at the name servers; policy.limits.connect says how long a lookup and a connection \
             may take.",
        ),
        FailureCode::AddressNotAllowed => (
            "The host of the URL leads to an address that receivers may not have: a private one, or \
             one that the operator denied. Nothing was sent.",
            "Use a public address. Operators: egress.allow opens networks of your own; see \
             docs/guide/receivers.md.",
        ),
        FailureCode::ConnectFailed => (
            "Nobody accepted the connection, or there is no way to the address.",
            "Is the receiver up, on this port, and does a firewall let us through?",
        ),
        FailureCode::ConnectTimeout => (
            "Nobody answered the connection within policy.limits.connect.",
            "Is the receiver up, and does a firewall drop our packets? Raise the limit if the way is \
             slow.",
        ),
        FailureCode::ProxyFailed => (
            "The proxy that policy.proxy names could not be reached, refused us, or did not lead on.",
            "Operators: see `detail` of the attempt, the proxy's log and egress.proxies of the \
             configuration.",
        ),
        FailureCode::TlsCertificateInvalid => (
            "The receiver's certificate is out of date, is for another name, or nobody we trust has \
             signed it. Nothing was sent.",
            "Renew the certificate, with its whole chain. For an authority of your own: \
             policy.tls.authorities, or egress.extra_roots of the server.",
        ),
        FailureCode::TlsFailed => (
            "The TLS handshake failed: no common version or cipher, or the receiver refused us, often \
             because it wants a client certificate.",
            "See `detail` of the attempt and the receiver's log; policy.auth has client_certificate.",
        ),
        FailureCode::TlsTimeout => (
            "The TLS handshake was not over within policy.limits.tls.",
            "Is the receiver overloaded, or does the port speak something else than TLS?",
        ),
        FailureCode::ResponseTimeout => (
            "The request was sent, but no answer began within policy.limits.response. The receiver \
             may have it all the same.",
            "Let the receiver answer first and work afterwards. Receivers drop repeats by the event's \
             id.",
        ),
        FailureCode::AttemptTimeout => (
            "The whole attempt took longer than policy.limits.total. The receiver may have it all the \
             same.",
            "Let the receiver answer first and work afterwards, or raise the limit (with lease.time).",
        ),
        FailureCode::ConnectionClosed => (
            "The connection broke before an answer came. The receiver may have it all the same.",
            "See the receiver's log for a crash or a restart, and the limits of proxies in between.",
        ),
        FailureCode::ProtocolError => (
            "What came back is not HTTP as it should be.",
            "Does the port belong to an HTTP server? https to a port that speaks http looks like this \
             too.",
        ),
        FailureCode::ResponseHeadTooLarge => (
            "The head of the answer is larger than we read.",
            "Let the receiver send fewer or shorter headers.",
        ),
        FailureCode::RequestInvalid => (
            "The request could not be made: a template has no value for this event, a header does not \
             fit, or a secret has the wrong form. Nothing was sent.",
            "`detail` of the attempt names it. Correct the policy, or publish events with what it \
             needs.",
        ),
        FailureCode::FamilyNotRouted => (
            "policy.request.families has no path for events of this family (the type up to its first \
             dot), or has switched it off. Nothing was sent.",
            "Give the family a path, or `\"*\"` for all others, then retry; `off` makes no deliveries \
             at all.",
        ),
        FailureCode::AuthUnavailable => (
            "A secret that policy.auth names is missing or cannot be opened. Nothing was sent.",
            "Give the subscription the secret: `posthorn subscriptions update ID --secret NAME=VALUE`. \
             If it cannot be opened, the seal key is not the one it was sealed with.",
        ),
        FailureCode::CertificateUnavailable => (
            "The client certificate that policy.auth asks for is missing, revoked, out of date or \
             cannot be opened. Nothing was sent.",
            "`posthorn certificates list` shows what there is; rotate or create it.",
        ),
        FailureCode::TokenUnavailable => (
            "The token server that policy.auth names gave no token. Nothing was sent.",
            "`detail` of the attempt says what it answered. Check token_url, client_id and the secret.",
        ),
        FailureCode::MessageTooLarge => (
            "The event does not fit into a push message, which has at most 4,096 bytes.",
            "Publish less in the payload, and let the agent fetch the rest.",
        ),
        FailureCode::PushUnavailable => (
            "The message could not be put into the agent's mailbox; trouble of ours, which costs the \
             delivery no attempt.",
            "Operators: see the log, the store, and whether push.enabled is set on this node.",
        ),
        FailureCode::Internal => (
            "The attempt crashed. This is a defect of ours, never the receiver's fault.",
            "Please report it with the log lines of that time.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_end_and_wait_is_explained_under_its_own_name() {
        let all = all();
        let find = |kind, code: &str| {
            let mut found = all.iter().filter(|r| r.kind == kind && r.code == code);
            assert!(found.next().is_some() && found.next().is_none(), "{code}");
        };
        for code in FailureCode::ALL {
            find(Kind::Failure, code.as_str());
        }
        let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        for reason in DeadReason::ALL {
            find(Kind::Dead, &name(serde_json::to_value(reason).expect("a text")));
        }
        for reason in CancelReason::ALL {
            find(Kind::Cancelled, &name(serde_json::to_value(reason).expect("a text")));
        }
        for reason in WaitReason::ALL {
            find(Kind::Waiting, reason.as_str());
        }
        for reason in &all {
            let whole = |text: &str| text.ends_with(['.', '?']) && text.len() > 20;
            assert!(whole(reason.meaning) && whole(reason.remedy), "{}", reason.code);
        }
    }
}

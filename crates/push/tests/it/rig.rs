//! One session on a bench: a clock to turn, and everything it says in a list.

use bytes::Bytes;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushEncoding, PushHeaders, PushMessage, Span,
    StoredMessage, Timestamp,
};
use posthorn_push::protocol::Close;
use posthorn_push::session::{
    Answer, Ask, Broadcasts, Context, Options, Output, Pushed, Session, Summary,
};
use serde_json::Value;

pub(crate) const FRESH: AgentId = AgentId::from_random(0xF1E5);
pub(crate) const KNOWN: AgentId = AgentId::from_random(0xA6E7);
pub(crate) const CHANNEL: ChannelId = ChannelId::from_random(0xC4A7);

pub(crate) struct Rig {
    pub(crate) session: Session,
    pub(crate) options: Options,
    pub(crate) broadcasts: Broadcasts,
    pub(crate) now: Timestamp,
    pub(crate) out: Vec<Output>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let broadcasts = Broadcasts::default();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut out = Vec::new();
        let context = Context { now, options: &options, broadcasts: &broadcasts };
        let session = Session::new(FRESH, &context, &mut out);
        Self { session, options, broadcasts, now, out }
    }

    /// Past the hello of an agent that is known, with nothing stored: the first read is answered.
    pub(crate) fn open(options: Options) -> Self {
        let mut rig = Self::with(options);
        rig.hello_known(0);
        rig.answer(Answer::Read(Vec::new()));
        rig.take();
        rig
    }

    /// Past the hello of an agent for which so many are stored; the first read is asked.
    pub(crate) fn hello_known(&mut self, stored: u64) {
        self.text(&format!(r#"{{"messageType":"hello","uaid":"{KNOWN}"}}"#));
        self.answer(Answer::Connected { stored, outdated: false });
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.call(|session, context, out| session.text_frame(text, context, out));
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        self.call(|session, context, out| session.answer(answer, context, out));
    }

    pub(crate) fn push(&mut self, message: PushMessage) -> Pushed {
        self.call(|session, context, out| session.push(message, context, out))
    }

    pub(crate) fn check_storage(&mut self) -> bool {
        self.call(Session::check_storage)
    }

    pub(crate) fn ack(&mut self, numbers: &[u128]) {
        let updates: Vec<String> = numbers
            .iter()
            .map(|n| format!(r#"{{"channelID":"{CHANNEL}","version":"{}"}}"#, id(*n)))
            .collect();
        self.text(&format!(r#"{{"messageType":"ack","updates":[{}]}}"#, updates.join(",")));
    }

    pub(crate) fn call<T>(
        &mut self,
        what: impl FnOnce(&mut Session, &Context<'_>, &mut Vec<Output>) -> T,
    ) -> T {
        let context =
            Context { now: self.now, options: &self.options, broadcasts: &self.broadcasts };
        what(&mut self.session, &context, &mut self.out)
    }

    /// Time passes, and whatever timer is due goes off.
    pub(crate) fn wait(&mut self, span: Span) {
        self.now = self.now.plus(span);
        self.call(Session::tick);
    }

    /// Everything that was said since last time.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// The texts that were sent since last time.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        let texts = self.take().into_iter().filter_map(|output| match output {
            Output::Send(text) => Some(text),
            _ => None,
        });
        texts.collect()
    }

    /// The versions of the notifications that were sent since last time.
    pub(crate) fn notified(&mut self) -> Vec<u128> {
        versions(&self.take())
    }

    /// The asks since last time.
    pub(crate) fn asks(&mut self) -> Vec<Ask> {
        let asks = self.take().into_iter().filter_map(|output| match output {
            Output::Ask(ask) => Some(ask),
            _ => None,
        });
        asks.collect()
    }

    /// The close since last time, if there was one.
    pub(crate) fn closed(&mut self) -> Option<Close> {
        let mut closes = self.take().into_iter().filter_map(|output| match output {
            Output::Close(close) => Some(close),
            _ => None,
        });
        let first = closes.next();
        assert!(closes.next().is_none(), "closed twice");
        first
    }

    /// What was handed out to be saved, and the summary, since last time.
    pub(crate) fn ended(&mut self) -> (Vec<PushMessage>, Summary) {
        let mut saved = Vec::new();
        let mut summaries = Vec::new();
        for output in self.take() {
            match output {
                Output::Save(messages) => saved.extend(messages),
                Output::Ended(summary) => summaries.push(summary),
                _ => {}
            }
        }
        assert_eq!(summaries.len(), 1, "one line at the end");
        (saved, summaries.remove(0))
    }
}

pub(crate) fn versions(outputs: &[Output]) -> Vec<u128> {
    let versions = outputs.iter().filter_map(|output| match output {
        Output::Send(text) => {
            let json: Value = serde_json::from_str(text).expect("JSON");
            (json["messageType"] == "notification").then(|| {
                let version = json["version"].as_str().expect("a version");
                number(MessageId::from_printed(version).expect("an id"))
            })
        }
        _ => None,
    });
    versions.collect()
}

pub(crate) fn id(number: u128) -> MessageId {
    MessageId::from_bytes(number.to_be_bytes())
}

pub(crate) fn number(id: MessageId) -> u128 {
    u128::from_be_bytes(*id.as_bytes())
}

pub(crate) fn message(number: u128, now: Timestamp) -> PushMessage {
    PushMessage {
        agent: KNOWN,
        channel: CHANNEL,
        id: id(number),
        topic: None,
        ttl: 60,
        received_at: now,
        headers: Some(PushHeaders {
            encoding: PushEncoding::Aes128Gcm,
            encryption: None,
            crypto_key: None,
        }),
        body: Some(Bytes::from_static(b"sealed")),
    }
}

/// A stored message whose number and place are the same.
pub(crate) fn stored(number: u64, now: Timestamp) -> StoredMessage {
    StoredMessage { seq: MessageSeq(number), message: message(u128::from(number), now) }
}

pub(crate) fn with_topic(mut stored: StoredMessage, topic: &str) -> StoredMessage {
    stored.message.topic = Some(topic.parse().expect("a topic"));
    stored
}

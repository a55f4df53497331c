//! Kinds of events: topic and type in one number, as the index of events has them.
//!
//! The upper half is made of the topic, so the kinds of a topic are neighbours. Two names may share a half: who
//! reads by kind looks at the names again.

use posthorn_domain::Event;

/// The kind of an event.
pub(crate) fn of(event: &Event) -> i64 {
    of_names(event.topic.as_str(), event.event_type.as_str())
}

/// The kind that a topic and a type make.
pub(crate) fn of_names(topic: &str, event_type: &str) -> i64 {
    kind(half(topic), half(event_type))
}

/// The number of a name (FNV-1a).
pub(super) fn half(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    name.bytes().fold(2_166_136_261, step)
}

/// The kind that two names make.
pub(super) fn kind(topic: u32, event_type: u32) -> i64 {
    ((u64::from(topic) << 32) | u64::from(event_type)).cast_signed()
}

/// The topic's half of a kind.
pub(super) fn topic_of(kind: i64) -> u32 {
    u32::try_from(kind.cast_unsigned() >> 32).unwrap_or_default()
}

/// The type's half of a kind.
pub(super) fn type_of(kind: i64) -> u32 {
    u32::try_from(kind.cast_unsigned() & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_a_topic_are_neighbours() {
        for topic in [0, 1, i32::MAX.unsigned_abs(), u32::MAX / 2 + 1, u32::MAX] {
            let (first, last) = (kind(topic, 0), kind(topic, u32::MAX));
            assert_eq!(last - first, i64::from(u32::MAX));
            assert_eq!((topic_of(first), topic_of(last)), (topic, topic));
            assert_eq!((type_of(first), type_of(last)), (0, u32::MAX));
        }
        assert_eq!(half(""), 2_166_136_261);
        assert_eq!(half("a"), 0xe40c_292c, "a known value of FNV-1a");
    }
}

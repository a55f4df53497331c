//! What the patterns of schemas may need, found out without compiling them.
//!
//! A pattern is matched in linear time, by a machine whose size follows from its text: `\w{20}` needs twenty times what
//! `\w` does. The machine, and the memory it works in, stay as long as the schema is in use.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// How large one pattern may become; also what one counts that cannot be read here. The engine that compiles it sees to that.
pub(crate) const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The memory that matching may take to be fast.
pub(crate) const PATTERN_CACHE_MAX: usize = 64 << 10;
/// Bytes of one state, forwards and backwards.
const STATE_BYTES: u64 = 128;
/// What every pattern needs besides: what was matched before is remembered.
const PATTERN_BYTES: u64 = 16 << 10;
/// States of one range of characters that are more than a byte; where there are many ranges, they share most of them.
const WIDE_RANGE_STATES: u64 = 12;
const MANY_RANGE_STATES: u64 = 4;
const MANY_RANGES: u64 = 16;

/// Memory that a pattern may need, nearly.
pub(crate) fn memory(text: &str) -> u64 {
    let states = states(text).saturating_mul(STATE_BYTES);
    states.saturating_add(PATTERN_BYTES).min(PATTERN_BYTES_MAX as u64 + PATTERN_BYTES)
}

/// How many states a pattern has, nearly and rather too many: each may be looked at for each byte of a text.
pub(crate) fn states(text: &str) -> u64 {
    // Classes such as `\w` mean ASCII in schemas; names of Unicode's classes can be read only otherwise.
    let read = |unicode: bool| {
        let mut parser = ParserBuilder::new().unicode(unicode).utf8(unicode).build();
        parser.parse(text).ok()
    };
    let most = PATTERN_BYTES_MAX as u64 / STATE_BYTES;
    let found = read(false).or_else(|| read(true)).map_or(most, |pattern| count(&pattern));
    found.min(most)
}

fn count(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(class) => of_class(class),
        HirKind::Repetition(repetition) => {
            let times = u64::from(repetition.max.unwrap_or(repetition.min).max(repetition.min));
            (count(&repetition.sub) + 1).saturating_mul(times.max(1))
        }
        HirKind::Capture(capture) => count(&capture.sub) + 2,
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().fold(1, |sum, one| sum.saturating_add(count(one)))
        }
    }
}

fn of_class(class: &Class) -> u64 {
    let (ranges, ascii) = match class {
        Class::Unicode(class) => (class.ranges().len(), class.is_ascii()),
        Class::Bytes(class) => (class.ranges().len(), class.is_ascii()),
    };
    let ranges = ranges as u64;
    // One state with a table of ranges; otherwise one for each byte of a character.
    match ascii {
        true => 1 + ranges / 4,
        false => {
            let wide = (ranges + 1).min(MANY_RANGES) * WIDE_RANGE_STATES;
            wide + ranges.saturating_sub(MANY_RANGES) * MANY_RANGE_STATES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_multiplied() {
        let once = states("\\w");
        assert!(once < 5, "{once}");
        assert!(states("\\w{20}") >= 20 * once);
        assert!(states("(\\w{20}){20}") >= 400 * once);
        assert!(states("^[^\"]{1,200}$") > 2_000);
        assert!(states("^(a|b)+$") < 20);
    }

    /// Whoever goes by the estimate gets all that are allowed by it.
    #[test]
    fn patterns_need_no_more_than_is_counted() {
        for text in [
            "\\w{20}",
            "^(\\w{20}){20}$",
            "[^\"]{100}",
            "\\p{L}{20}",
            "[\\p{L}\\p{N}]{10}",
            ".{300}",
            "(a|b|c){200}",
            "(?:é|ü){50}",
            "[à-ü]{100}",
            "\\S{50}",
            "\\W{50}",
            "^https://[^/]{1,253}/.*$",
        ] {
            let limit = usize::try_from(states(text) * STATE_BYTES).expect("small");
            let options = jsonschema::PatternOptions::regex().size_limit(limit);
            let made = jsonschema::options()
                .with_pattern_options(options)
                .build(&serde_json::json!({"pattern": text}));
            assert!(made.is_ok(), "{text} needs more than {limit} bytes");
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_the_largest() {
        for odd in ["(?=a)", "(", "((a{1000}){1000}){1000}"] {
            assert_eq!(memory(odd), PATTERN_BYTES_MAX as u64 + PATTERN_BYTES, "{odd}");
        }
        assert!(memory("\\p{L}+") < PATTERN_BYTES_MAX as u64);
        assert!(memory("^[a-z0-9_-]{1,64}$") < 64 << 10, "what people write is small");
        assert!(memory("^\\d{4}-\\d{2}-\\d{2}T[0-9:.]+Z$") < 32 << 10);
    }
}

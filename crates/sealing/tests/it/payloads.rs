//! Bodies of all sorts, the same in every run.

use posthorn_testkit::dice::Dice;
use serde_json::json;

/// Texts and bodies by chance.
pub(crate) trait Payloads {
    fn text(&mut self, length: usize) -> String;
    fn body(&mut self, nth: usize) -> Vec<u8>;
}

impl Payloads for Dice {
    /// Text of any planes of Unicode, control characters included.
    fn text(&mut self, length: usize) -> String {
        let mut out = String::new();
        for _ in 0..length {
            let bound = [0x80, 0x800, 0x1_0000, 0x11_0000][self.below(4)];
            // Half of a surrogate pair is no character; a question mark will do.
            out.push(char::from_u32(self.below(bound) as u32).unwrap_or('?'));
        }
        out
    }

    /// One of many shapes, all of them UTF-8: what the libraries can take.
    fn body(&mut self, nth: usize) -> Vec<u8> {
        let text = match nth % 10 {
            0 => String::new(),
            1 => json!({"id": self.roll(), "text": "plain"}).to_string(),
            2 => json!({"text": self.text(40), "more": [null, true, -1.5e300]}).to_string(),
            3 => self.text(200),
            4 => "\0\r\n\t\u{7f}\u{1b}[2J\u{2028}\u{2029}\u{85}".repeat(1 + self.below(9)),
            5 => "\u{feff}{\"bom\":true}".to_owned(),
            6 => json!({"big": self.text(60_000)}).to_string(),
            7 => ".".repeat(self.below(50)) + "evt_1.1700000000." + &self.text(3),
            8 => "🏴󠁧󠁢󠁷󠁬󠁳󠁿 e\u{301} \u{202e}abc\u{202c} ﷽".repeat(1 + self.below(20)),
            _ => "{\"a\": 1 ,\r\n \"a\":2}  ".to_owned(),
        };
        text.into_bytes()
    }
}

//! Changes to an input, drawn from a seed.

/// A stream of numbers that depends on nothing but its seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.roll() % end as u64) as usize }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// The longest input: long enough for every limit worth crossing.
pub const INPUT_BYTES_MAX: usize = 8 * 1024;

/// Numbers at which something begins, ends or overflows.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "00",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "1e309",
];

/// Bytes at which something begins, ends or is escaped.
const BYTES: &[u8] = b"\0\t\n\r \"#%&'*+,-./0:;<=>?@A[\\]^_`a{|}~\x7F\x80\xC0\xE2\xFF";

/// Changes `input` in one to four ways.
pub fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str], dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        change(input, seeds, words, dice);
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str], dice: &mut Dice) {
    let at = dice.below(input.len() + 1);
    let (from, to) = stretch(input.len(), dice);
    match dice.below(13) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => {
            let new =
                if dice.below(2) == 0 { dice.roll() as u8 } else { BYTES[dice.below(BYTES.len())] };
            match input.get_mut(at) {
                Some(byte) => *byte = new,
                None => input.push(new),
            }
        }
        2 => input.insert(at, BYTES[dice.below(BYTES.len())]),
        3 => drop(input.drain(from..to)),
        4 => {
            let copy = input[from..to].to_vec();
            insert(input, at, &copy);
        }
        5 => input.truncate(at),
        6 => {
            // The same again and again, for limits on number, length and depth.
            let copy = input[from..to.min(from + 16)].to_vec();
            let times = 1 << dice.below(10);
            insert(input, at, &copy.repeat(times.min(INPUT_BYTES_MAX / copy.len().max(1))));
        }
        7 | 8 => {
            if let Some(word) = dice.pick(words) {
                insert(input, at, word.as_bytes());
            }
        }
        9 => {
            if let Some(word) = dice.pick(words) {
                input.splice(from..to, word.bytes());
            }
        }
        10 => replace_number(input, dice),
        11 => {
            if let Some(other) = dice.pick(seeds) {
                let (from, to) = stretch(other.len(), dice);
                insert(input, at, &other[from..to]);
            }
        }
        _ => {
            // The beginning of one and the end of another.
            if let Some(other) = dice.pick(seeds) {
                let from = dice.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}

/// A part of `len` bytes, more often short than long.
fn stretch(len: usize, dice: &mut Dice) -> (usize, usize) {
    let from = dice.below(len + 1);
    let most = if dice.below(2) == 0 { 8 } else { len };
    (from, (from + dice.below(most + 1)).min(len))
}

fn replace_number(input: &mut Vec<u8>, dice: &mut Dice) {
    let digits: Vec<usize> = (0..input.len()).filter(|at| input[*at].is_ascii_digit()).collect();
    let Some(at) = dice.pick(&digits).copied() else { return };
    let before = input[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let after = input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = NUMBERS[dice.below(NUMBERS.len())];
    input.splice(at - before..at + after, number.bytes());
}

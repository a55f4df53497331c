//! Ids as the Svix API writes them: a prefix and 27 characters of base 62, which stand for twenty bytes.
//!
//! Sixteen of them are an id of ours, four are a number (of an attempt, for instance). So an id can be shown there and read
//! back without a table, and texts sort like ids. It must not know which kinds of ids there are.

/// In ASCII order, so that texts sort like numbers.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// As many as the largest number of twenty bytes needs.
const CHARACTERS: usize = 27;
/// Twenty bytes as digits of 32 bits.
const LIMBS: usize = 5;

/// The text of an id and a number beside it, without a prefix.
pub fn to_text(id: &[u8; 16], number: u32) -> String {
    let mut limbs = [0_u32; LIMBS];
    for (limb, bytes) in limbs.iter_mut().zip(id.chunks_exact(4)) {
        *limb = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    limbs[LIMBS - 1] = number;
    let mut text = [b'0'; CHARACTERS];
    for slot in text.iter_mut().rev() {
        let mut rest = 0_u64;
        for limb in &mut limbs {
            let value = (rest << 32) | u64::from(*limb);
            *limb = (value / 62) as u32;
            rest = value % 62;
        }
        *slot = ALPHABET[rest as usize];
    }
    text.iter().map(|byte| char::from(*byte)).collect()
}

/// Back from a text; `None` for whatever is not one.
pub fn parse(text: &str) -> Option<([u8; 16], u32)> {
    if text.len() != CHARACTERS {
        return None;
    }
    let mut limbs = [0_u32; LIMBS];
    for byte in text.bytes() {
        let mut carry = ALPHABET.binary_search(&byte).ok()? as u64;
        for limb in limbs.iter_mut().rev() {
            let value = u64::from(*limb) * 62 + carry;
            *limb = value as u32;
            carry = value >> 32;
        }
        if carry != 0 {
            return None;
        }
    }
    let mut id = [0; 16];
    for (bytes, limb) in id.chunks_exact_mut(4).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes());
    }
    Some((id, limbs[LIMBS - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_and_sort_like_their_texts() {
        let numbers = [0, 1, 61, 62, 3_843, u128::MAX / 3, u128::MAX - 1, u128::MAX];
        let mut all = Vec::new();
        for number in numbers {
            for beside in [0, 1, 77, u32::MAX] {
                let id = number.to_be_bytes();
                let text = to_text(&id, beside);
                assert_eq!(text.len(), CHARACTERS);
                assert_eq!(parse(&text), Some((id, beside)), "{text}");
                all.push(text);
            }
        }
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!(all[0], "0".repeat(CHARACTERS));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let largest = to_text(&[0xff; 16], u32::MAX);
        let one_more = "aWgEPTl1tmebfsQzFP4bxwgy80W";
        assert_eq!(largest, "aWgEPTl1tmebfsQzFP4bxwgy80V");
        assert_eq!(parse(one_more), None);
        for bad in ["", "0", &"0".repeat(26), &"0".repeat(28), &"-".repeat(27), &"é".repeat(27)] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&"z".repeat(27)), None);
    }
}

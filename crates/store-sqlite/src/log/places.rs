//! Places within a block: a set of small numbers, and how it is stored.

use super::BLOCK;

const WORDS: usize = BLOCK as usize / 64;
/// Up to here a list of numbers is shorter than one bit for each row of a block.
const LISTED_MAX: usize = BLOCK as usize / 16 - 1;

/// A set of places in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places([u64; WORDS]);

impl Places {
    pub(crate) const NONE: Self = Self([0; WORDS]);

    pub(crate) fn insert(&mut self, place: u16) {
        let place = usize::from(place) % BLOCK as usize;
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Adds what is stored. What cannot be read adds nothing that was not there.
    pub(crate) fn add(&mut self, stored: &[u8]) {
        if stored.len() == WORDS * 8 {
            for (word, bytes) in self.0.iter_mut().zip(stored.chunks_exact(8)) {
                *word |= u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            }
            return;
        }
        for pair in stored.chunks_exact(2) {
            self.insert(u16::from_le_bytes([pair[0], pair[1]]));
        }
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// From the first to the last.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let base = index as i64 * 64;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }
}

/// How a rising list of places is stored: the numbers themselves, or one bit for each row.
pub(crate) fn encode(places: &[u16]) -> Vec<u8> {
    if places.len() <= LISTED_MAX {
        return places.iter().flat_map(|place| place.to_le_bytes()).collect();
    }
    let mut set = Places::NONE;
    places.iter().for_each(|place| set.insert(*place));
    set.0.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_every_size_come_back() {
        for step in [1, 2, 3, 15, 16, 17, 100, 4_095, 4_096] {
            let places: Vec<u16> = (0..BLOCK as u16).step_by(step).collect();
            let stored = encode(&places);
            assert!(stored.len() <= WORDS * 8, "{step}: {} bytes", stored.len());
            let mut set = Places::NONE;
            set.add(&stored);
            let wanted: Vec<i64> = places.iter().map(|place| i64::from(*place)).collect();
            assert_eq!(set.iter().collect::<Vec<_>>(), wanted, "every {step}th");
            let backwards: Vec<i64> = wanted.iter().rev().copied().collect();
            assert_eq!(set.iter().rev().collect::<Vec<_>>(), backwards);
        }
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let (mut some, mut others) = (Places::NONE, Places::NONE);
        some.add(&encode(&[1, 5, 4_095]));
        others.add(&encode(&(0..1_000).collect::<Vec<_>>()));
        some.intersect(&others);
        assert_eq!(some.iter().collect::<Vec<_>>(), [1, 5]);
        some.intersect(&Places::NONE);
        assert!(some.is_empty());
        some.add(&[7]);
        assert!(some.is_empty(), "half a number is none");
    }
}

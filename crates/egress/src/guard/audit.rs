//! Whether the address policy says what it should, found out by comparing it with a second
//! statement of it.
//!
//! The policy is written as prefixes and matched bit by bit; the reference here is written as
//! sorted first addresses of ranges, from the IANA special-purpose registries and the decisions
//! that go beyond them, and searched by halving. A slip in one is not a slip in the other, and
//! neither calls the other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::{Class, classify};
use Class::{Metadata, Public, Special};

/// An address that policy and reference judge differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub address: IpAddr,
    found: Class,
    expected: Class,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, found, expected } = self;
        write!(f, "{address} is {}, but should be {}", text(*found), text(*expected))
    }
}

fn text(class: Class) -> &'static str {
    match class {
        Public => "public",
        Special => "special",
        Metadata => "metadata",
    }
}

/// Compares the two on one address.
pub fn compare(address: IpAddr) -> Result<(), Difference> {
    let found = classify(address);
    let expected = match address {
        IpAddr::V4(ip) => expected_v4(ip.to_bits()),
        IpAddr::V6(ip) => expected_v6(ip),
    };
    if found == expected { Ok(()) } else { Err(Difference { address, found, expected }) }
}

/// Where the class of IPv4 addresses changes.
const V4_STEPS: [(u32, Class); 40] = [
    (0x0000_0000, Special),
    (0x0100_0000, Public),
    (0x0A00_0000, Special),
    (0x0B00_0000, Public),
    (0x6440_0000, Special),
    (0x6464_64C8, Metadata),
    (0x6464_64C9, Special),
    (0x6480_0000, Public),
    (0x7F00_0000, Special),
    (0x8000_0000, Public),
    (0xA83F_8110, Metadata),
    (0xA83F_8111, Public),
    (0xA9FE_0000, Metadata),
    (0xA9FF_0000, Public),
    (0xAC10_0000, Special),
    (0xAC20_0000, Public),
    (0xC000_0000, Special),
    (0xC000_00C0, Metadata),
    (0xC000_00C1, Special),
    (0xC000_0100, Public),
    (0xC000_0200, Special),
    (0xC000_0300, Public),
    (0xC01F_C400, Special),
    (0xC01F_C500, Public),
    (0xC034_C100, Special),
    (0xC034_C200, Public),
    (0xC058_6300, Special),
    (0xC058_6400, Public),
    (0xC0A8_0000, Special),
    (0xC0A9_0000, Public),
    (0xC0AF_3000, Special),
    (0xC0AF_3100, Public),
    (0xC612_0000, Special),
    (0xC614_0000, Public),
    (0xC633_6400, Special),
    (0xC633_6500, Public),
    (0xCB00_7100, Special),
    (0xCB00_7200, Public),
    (0xE000_0000, Special),
    (0xFFFF_FFFF, Special),
];

/// Where the class of IPv6 addresses changes, forms that carry IPv4 addresses aside.
const V6_STEPS: [(u128, Class); 21] = [
    (0x0000_0000_0000_0000_0000_0000_0000_0000, Special),
    (0x2000_0000_0000_0000_0000_0000_0000_0000, Public),
    (0x2001_0000_0000_0000_0000_0000_0000_0000, Special),
    (0x2001_0200_0000_0000_0000_0000_0000_0000, Public),
    (0x2001_0DB8_0000_0000_0000_0000_0000_0000, Special),
    (0x2001_0DB9_0000_0000_0000_0000_0000_0000, Public),
    (0x2002_0000_0000_0000_0000_0000_0000_0000, Special),
    (0x2003_0000_0000_0000_0000_0000_0000_0000, Public),
    (0x2620_004F_8000_0000_0000_0000_0000_0000, Special),
    (0x2620_004F_8001_0000_0000_0000_0000_0000, Public),
    (0x3FFF_0000_0000_0000_0000_0000_0000_0000, Special),
    (0x3FFF_1000_0000_0000_0000_0000_0000_0000, Public),
    (0x4000_0000_0000_0000_0000_0000_0000_0000, Special),
    (0xFD00_0042_0000_0000_0000_0000_0000_0042, Metadata),
    (0xFD00_0042_0000_0000_0000_0000_0000_0043, Special),
    (0xFD00_0EC2_0000_0000_0000_0000_0000_0254, Metadata),
    (0xFD00_0EC2_0000_0000_0000_0000_0000_0255, Special),
    (0xFD20_00CE_0000_0000_0000_0000_0000_0254, Metadata),
    (0xFD20_00CE_0000_0000_0000_0000_0000_0255, Special),
    (0xFE80_0000_0000_0000_0000_0000_0000_0000, Metadata),
    (0xFEC0_0000_0000_0000_0000_0000_0000_0000, Special),
];

fn expected_v4(bits: u32) -> Class {
    V4_STEPS[V4_STEPS.partition_point(|(first, _)| *first <= bits) - 1].1
}

/// An address that carries the IPv4 address of a metadata service is one itself, whatever block it
/// lies in.
fn expected_v6(ip: Ipv6Addr) -> Class {
    let carries = carried_v4(ip.octets()).into_iter().flatten();
    if carries.map(u32::from_be_bytes).any(|bits| expected_v4(bits) == Metadata) {
        return Metadata;
    }
    V6_STEPS[V6_STEPS.partition_point(|(first, _)| *first <= ip.to_bits()) - 1].1
}

fn carried_v4(octets: [u8; 16]) -> [Option<[u8; 4]>; 8] {
    let four = |at: usize| [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
    let last = four(12);
    let zeros = |from: usize, to: usize| octets[from..to].iter().all(|octet| *octet == 0);
    [
        zeros(0, 12).then_some(last),
        (zeros(0, 10) && octets[10..12] == [0xFF; 2]).then_some(last),
        (zeros(0, 8) && octets[8..12] == [0xFF, 0xFF, 0, 0]).then_some(last),
        (octets[..4] == [0x00, 0x64, 0xFF, 0x9B] && zeros(4, 12)).then_some(last),
        octets.starts_with(&[0x00, 0x64, 0xFF, 0x9B, 0x00, 0x01]).then_some(last),
        octets.starts_with(&[0x20, 0x02]).then_some(four(2)),
        octets.starts_with(&[0x20, 0x01, 0x00, 0x00]).then_some(last.map(|octet| !octet)),
        matches!(octets[8..12], [0 | 2, 0, 0x5E, 0xFE]).then_some(last),
    ]
}

/// An endless series of IPv6 addresses worth looking at, the same for the same seed: edges of
/// prefixes, forms that carry IPv4 addresses, and addresses from all over the space.
#[derive(Clone, Debug)]
pub struct V6Samples {
    state: u64,
}

impl V6Samples {
    /// Begins a series.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// SplitMix64: enough to scatter samples, and the same everywhere.
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// An IPv4 address at or near a step, or any.
    fn v4(&mut self) -> u32 {
        let any = self.next_u64() as u32;
        match self.below(4) {
            0 => any,
            1 => V4_STEPS[self.below(V4_STEPS.len())].0 | any & 0xFF,
            _ => {
                let step = V4_STEPS[self.below(V4_STEPS.len())].0;
                step.wrapping_add(any % 3).wrapping_sub(1)
            }
        }
    }

    fn carrying(&mut self) -> u128 {
        let v4 = self.v4();
        let (low, filler) = (u128::from(v4), self.next_u128());
        match self.below(9) {
            0 => low,
            1 => 0xFFFF << 32 | low,
            2 => 0xFFFF << 48 | low,
            3 => 0x0064_FF9B << 96 | low,
            4 => 0x0064_FF9B_0001 << 80 | (filler >> 48 & !0xFFFF_FFFF) | low,
            5 => 0x2002 << 112 | low << 80 | filler >> 48,
            6 => 0x2001 << 112 | (filler >> 32 & !0xFFFF_FFFF) | u128::from(!v4),
            7 => (filler & !u128::from(u64::MAX)) | 0x0000_5EFE << 32 | low,
            _ => (filler & !u128::from(u64::MAX)) | 0x0200_5EFE << 32 | low,
        }
    }
}

impl Iterator for V6Samples {
    type Item = Ipv6Addr;

    fn next(&mut self) -> Option<Ipv6Addr> {
        let filler = self.next_u128();
        let bits = match self.below(4) {
            // At a step, beside it, or somewhere behind it.
            0 => {
                let step = V6_STEPS[self.below(V6_STEPS.len())].0;
                match self.below(3) {
                    0 => step.wrapping_add(filler % 3).wrapping_sub(1),
                    1 => step.wrapping_add(filler >> self.below(127)),
                    _ => step.wrapping_sub(filler >> self.below(127)),
                }
            }
            1 => self.carrying(),
            2 => 1 << 125 | filler >> 3,
            _ => filler,
        };
        Some(Ipv6Addr::from_bits(bits))
    }
}

/// Compares IPv4 addresses, both ends included, up to the first difference.
pub fn compare_v4(first: Ipv4Addr, last: Ipv4Addr) -> Result<(), Difference> {
    (first.to_bits()..=last.to_bits())
        .try_for_each(|bits| compare(IpAddr::V4(Ipv4Addr::from_bits(bits))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_sorted_and_each_changes_something() {
        assert!(V4_STEPS.is_sorted_by_key(|(first, _)| *first));
        assert!(V6_STEPS.is_sorted_by_key(|(first, _)| *first));
        assert!(V6_STEPS.windows(2).all(|pair| pair[0].1 != pair[1].1));
    }

    #[test]
    fn v4_policy_and_reference_agree_at_every_edge_and_on_a_walk() {
        for (step, _) in V4_STEPS {
            let near = [step.saturating_sub(1), step, step.saturating_add(1)];
            for bits in near {
                compare(IpAddr::V4(Ipv4Addr::from_bits(bits))).unwrap();
            }
        }
        for bits in (0..=u32::MAX).step_by(4_093) {
            compare(IpAddr::V4(Ipv4Addr::from_bits(bits))).unwrap();
        }
    }

    #[test]
    fn v6_policy_and_reference_agree_on_samples() {
        let mut seen = [0_u32; 3];
        for ip in V6Samples::new(1).take(300_000) {
            compare(IpAddr::V6(ip)).unwrap();
            seen[classify(IpAddr::V6(ip)) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 1_000), "every class is well met: {seen:?}");
    }

    #[test]
    fn every_mapped_address_is_closed() {
        let mut samples = V6Samples::new(2);
        for _ in 0..100_000 {
            let mapped = Ipv4Addr::from_bits(samples.v4()).to_ipv6_mapped();
            assert_ne!(classify(IpAddr::V6(mapped)), Public, "{mapped}");
        }
    }

    #[test]
    fn differences_say_which_address_and_what_it_should_be() {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let difference = Difference { address, found: Public, expected: Special };
        assert_eq!(difference.to_string(), "10.0.0.1 is public, but should be special");
    }
}

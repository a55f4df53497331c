//! Small bodies that are large once decoded, made without a compressor.

use std::sync::LazyLock;

/// Bytes the deflate bombs decode to.
const DECODED: usize = 8 * 1024 * 1024;
/// The longest match deflate knows.
const MATCH: usize = 258;

/// Writes bits, least significant first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    fn push(&mut self, value: u32, count: u32) {
        self.held |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push((self.held & 0xFF) as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// Huffman codes come most significant bit first.
    fn push_code(&mut self, code: u32, count: u32) {
        for bit in (0..count).rev() {
            self.push(code >> bit & 1, 1);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push((self.held & 0xFF) as u8);
        }
        self.bytes
    }
}

/// One block with the fixed codes: a zero, and "the last byte 258 times more" again and again.
fn deflated() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(1, 1); // the last block
    bits.push(1, 2); // fixed codes
    bits.push_code(0b0011_0000, 8); // literal 0
    for _ in 0..(DECODED - 1) / MATCH {
        bits.push_code(0b1100_0101, 8); // length 258
        bits.push_code(0, 5); // distance 1
    }
    for _ in 0..(DECODED - 1) % MATCH {
        bits.push_code(0b0011_0000, 8);
    }
    bits.push_code(0, 7); // the end
    bits.finish()
}

/// The checksum of gzip over [`DECODED`] zeros; a test computes it.
const CRC32_OF_ZEROS: u32 = 0x1AD2_BC45;

/// The checksum of zlib over as many zeros: the sum stays 1, the sum of sums counts.
fn adler32_of_zeros(count: usize) -> u32 {
    ((count % 65_521) as u32) << 16 | 1
}

pub(crate) static GZIP: LazyLock<Vec<u8>> = LazyLock::new(gzip);
pub(crate) static ZLIB: LazyLock<Vec<u8>> = LazyLock::new(zlib);
pub(crate) static ZSTD: LazyLock<Vec<u8>> = LazyLock::new(zstd);

fn gzip() -> Vec<u8> {
    let mut bytes = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255];
    bytes.extend(deflated());
    bytes.extend(CRC32_OF_ZEROS.to_le_bytes());
    bytes.extend((DECODED as u32).to_le_bytes());
    bytes
}

fn zlib() -> Vec<u8> {
    let mut bytes = vec![0x78, 0xDA];
    bytes.extend(deflated());
    bytes.extend(adler32_of_zeros(DECODED).to_be_bytes());
    bytes
}

/// A frame of blocks that each say "this byte 128 KiB times" in four bytes.
fn zstd() -> Vec<u8> {
    const BLOCK: u32 = 128 * 1024;
    const BLOCKS: u32 = 8 * 1024;
    // Magic number; no checksum, no size, a window of 128 KiB.
    let mut bytes = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 7 << 3];
    for index in 1..=BLOCKS {
        let header = BLOCK << 3 | 1 << 1 | u32::from(index == BLOCKS);
        bytes.extend(&header.to_le_bytes()[..3]);
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{CRC32_OF_ZEROS, DECODED, adler32_of_zeros, gzip, zlib, zstd};

    fn crc32_of_zeros(count: usize) -> u32 {
        let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        !(0..count * 8).fold(u32::MAX, |crc, _| bit(crc))
    }

    #[test]
    fn bombs_fit_into_what_a_sender_reads() {
        for bomb in [gzip(), zlib(), zstd()] {
            assert!(bomb.len() < 64 * 1024, "{}", bomb.len());
            assert!(DECODED / bomb.len() > 100 || bomb.starts_with(&[0x28, 0xB5]));
        }
    }

    #[test]
    fn checksums_are_those_of_the_formats() {
        // Known values for four zeros.
        assert_eq!(crc32_of_zeros(4), 0x2144_DF1C);
        assert_eq!(crc32_of_zeros(DECODED), CRC32_OF_ZEROS);
        assert_eq!(adler32_of_zeros(4), 0x0004_0001);
    }
}

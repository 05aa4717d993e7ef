//! The hash of keys in tables.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

/// Hashes a key eight bytes at a time. Keys may come from untrusted input, so the hash depends on a
/// secret of this process. In tests the secret is fixed, so that a simulation has one order.
#[derive(Clone, Debug)]
pub(crate) struct KeyHashes(u64);

impl Default for KeyHashes {
    fn default() -> Self {
        static SECRET: LazyLock<u64> = LazyLock::new(|| {
            if cfg!(test) { 1 } else { crate::domain::env::unique().as_u64_pair().0 }
        });
        Self(*SECRET)
    }
}

impl BuildHasher for KeyHashes {
    type Hasher = KeyHash;

    fn build_hasher(&self) -> KeyHash {
        KeyHash(self.0)
    }
}

/// A hash of a key that is the same in all processes.
pub(crate) fn open_hash(key: &str) -> u64 {
    let mut hash = KeyHash(0);
    hash.write(key.as_bytes());
    hash.finish()
}

#[derive(Debug)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    fn mix(&mut self, word: u64) {
        // Uses both halves of the product, so that every bit of a key counts.
        let mixed = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (mixed as u64) ^ ((mixed >> 64) as u64);
    }
}

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.mix(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }
}

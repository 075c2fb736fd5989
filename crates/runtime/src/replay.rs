//! The clock and the random numbers of atomic runs: derived from the journal, so that an attempt can be repeated with the same values
//! without an entry for each.

use millrace_wire::{EventId, Hlc};
use sha2::{Digest as _, Sha256};

const BLOCK_BYTES: usize = 32;

/// The time and the random numbers of one attempt at a run.
pub struct Replay {
    /// When the attempt began, as its FIRED says.
    at: Hlc,
    /// Seed, run and attempt; blocks of random bytes are digests of it and of their number.
    key: Sha256,
    blocks: u64,
    block: [u8; BLOCK_BYTES],
    /// Bytes of the block that were not given out.
    left: usize,
}

impl Replay {
    /// Of an attempt that began `at` this time, in a namespace with this replay seed.
    pub fn new(seed: &[u8; 16], run: EventId, attempt: u32, at: Hlc) -> Self {
        let mut key = Sha256::new();
        key.update(seed);
        key.update(run.get().to_le_bytes());
        key.update(attempt.to_le_bytes());
        Self { at, key, blocks: 0, block: [0; BLOCK_BYTES], left: 0 }
    }

    /// Nanoseconds since 1970, as often as it is asked.
    pub fn now_ns(&self) -> u64 {
        self.at.wall_us().saturating_mul(1000)
    }

    /// The next bytes of the attempt.
    pub fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.left == 0 {
                let mut digest = self.key.clone();
                digest.update(self.blocks.to_le_bytes());
                self.block = digest.finalize().into();
                (self.blocks, self.left) = (self.blocks + 1, BLOCK_BYTES);
            }
            *byte = self.block[BLOCK_BYTES - self.left];
            self.left -= 1;
        }
    }
}

//! What attention may do.

/// What [`CudnnAttention`](super::CudnnAttention) may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudnnOptions {
    /// Gradients have the same bits in every run. On Ampere and Hopper, where the library adds up gradients of queries by
    /// atomics otherwise, this makes it store the gradients of all scores and read them again: two bytes of scratch for
    /// each, so that memory grows with the square of the sequence.
    pub deterministic: bool,
    /// How much device memory attention may use beside its operands. A batch that needs more is computed in equal parts,
    /// one after the other; a single sample that needs more is not supported.
    pub scratch: ScratchLimit,
}

impl Default for CudnnOptions {
    fn default() -> CudnnOptions {
        CudnnOptions { deterministic: true, scratch: ScratchLimit::default() }
    }
}

/// How much device memory attention may use beside its operands: [a part](Self::PART) of what is unused, within two limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchLimit {
    /// As much in any case, in bytes.
    pub least: usize,
    /// As much and not more, in bytes.
    pub most: usize,
    /// Ranks that share the device, each of which takes as much.
    pub ranks: usize,
}

impl ScratchLimit {
    /// Of unused memory, one byte in so many.
    pub const PART: usize = 4;

    /// The limit where `unused` bytes are.
    pub fn bytes(&self, unused: usize) -> usize {
        (unused / (ScratchLimit::PART * self.ranks.max(1))).clamp(self.least, self.most)
    }
}

impl Default for ScratchLimit {
    /// Between 2 and 8 GiB, of a device of one rank.
    fn default() -> ScratchLimit {
        ScratchLimit { least: 2 << 30, most: 8 << 30, ranks: 1 }
    }
}

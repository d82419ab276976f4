//! Options of attention.

/// Options of [`CudnnAttention`](super::CudnnAttention).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudnnOptions {
    /// Requires bitwise equal gradients in every run. On Ampere and Hopper, where the library otherwise sums query
    /// gradients by atomics, it then stores the gradients of all scores and reads them again: two bytes of scratch
    /// memory per score, which grows with the square of the sequence length.
    pub deterministic: bool,
    /// Limit of scratch memory. A batch that needs more is computed in equal parts, one after the other; if a single
    /// sample needs more, the shape is not supported.
    pub scratch: ScratchLimit,
}

impl Default for CudnnOptions {
    fn default() -> CudnnOptions {
        CudnnOptions { deterministic: true, scratch: ScratchLimit::default() }
    }
}

/// Limit of the scratch memory of attention: a [fraction](Self::PART) of the free device memory, clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchLimit {
    /// Lower bound of the limit, in bytes.
    pub least: usize,
    /// Upper bound of the limit, in bytes.
    pub most: usize,
    /// Number of ranks that share the device, each with its own scratch memory.
    pub ranks: usize,
}

impl ScratchLimit {
    /// Divisor of the free device memory.
    pub const PART: usize = 4;

    /// Returns the limit given the free device memory, in bytes.
    pub fn bytes(&self, unused: usize) -> usize {
        (unused / (ScratchLimit::PART * self.ranks.max(1))).clamp(self.least, self.most)
    }
}

impl Default for ScratchLimit {
    /// Returns the limit for one rank per device: between 2 and 8 GiB.
    fn default() -> ScratchLimit {
        ScratchLimit { least: 2 << 30, most: 8 << 30, ranks: 1 }
    }
}

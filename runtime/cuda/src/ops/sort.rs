//! A stable radix sort of u32 keys on the device.

use crate::gpu::args;
use crate::kernels::SORT;
use crate::{GpuContext, Grid};

/// Keys of one block; `TILE` of the kernels.
const TILE: u64 = 2048;
/// Values of a digit, which is also the number of threads of a block.
const DIGITS: u64 = 256;
/// Bits of a digit.
const DIGIT_BITS: u32 = 8;
/// Threads of the one block that scans counts.
const SCAN_THREADS: u32 = 1024;

/// Memory for keys and their positions: two pairs of arrays, between which each pass moves them.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortSpace {
    /// Address of the keys to sort (u32).
    pub keys: u64,
    n: u64,
    pitch: u64,
}

/// Addresses of sorted keys and of their original positions (both u32).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sorted {
    pub keys: u64,
    pub order: u64,
}

impl SortSpace {
    /// Returns the bytes of memory needed to sort `n` keys.
    pub fn bytes(n: usize) -> usize {
        let n = n as u64;
        (4 * Self::pitch(n) + n.div_ceil(TILE) * DIGITS * 4) as usize
    }

    /// Creates the space for `n` keys at `address`, which is aligned to 256.
    ///
    /// # Panics
    /// When `n` does not fit into 32 bits.
    pub fn new(address: u64, n: usize) -> SortSpace {
        assert!(u32::try_from(n).is_ok(), "positions in a sort fit into 32 bits");
        let n = n as u64;
        SortSpace { keys: address, n, pitch: Self::pitch(n) }
    }

    fn pitch(n: u64) -> u64 {
        (n * 4).next_multiple_of(256)
    }

    /// Sorts the keys, which are `largest` at most; equal keys stay in order.
    ///
    /// # Safety
    /// The memory is live, [`keys`](Self::keys) are written, and no other work uses them.
    pub unsafe fn sort(self, gpu: &GpuContext, largest: u64) -> Sorted {
        let SortSpace { keys, n, pitch } = self;
        let pairs = [keys, keys + 2 * pitch].map(|keys| Sorted { keys, order: keys + pitch });
        let counts = keys + 4 * pitch;
        let tiles = n.div_ceil(TILE);
        let by_tile = Grid { blocks: [tiles as u32, 1, 1], threads: DIGITS as u32, shared: 0 };
        let one_block = Grid { blocks: [1, 1, 1], threads: SCAN_THREADS, shared: 0 };
        let passes = (u64::BITS - largest.leading_zeros()).div_ceil(DIGIT_BITS).max(1);
        for pass in 0..passes {
            let (from, to) = (pairs[pass as usize % 2], pairs[(pass as usize + 1) % 2]);
            let shift = pass * DIGIT_BITS;
            // In the first pass the order is the identity.
            let order = if pass == 0 { 0 } else { from.order };
            // SAFETY: as the caller promises; the memory has room for both pairs and the counts.
            unsafe {
                gpu.launch((&SORT, "count_digits"), by_tile, args![from.keys, n, shift, counts]);
                gpu.launch((&SORT, "start_of_counts"), one_block, args![counts, tiles * DIGITS]);
                gpu.launch(
                    (&SORT, "move_by_digit"),
                    by_tile,
                    args![from.keys, order, n, shift, counts, to.keys, to.order],
                );
            }
        }
        pairs[passes as usize % 2]
    }
}

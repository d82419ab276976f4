//! Sources and tile sizes of the attention kernels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use crate::backend::cuda::Source;
use crate::backend::cuda::gpu::lock;

/// The attention kernels without tensor cores.
pub static PLAIN: Source = Source {
    name: Cow::Borrowed("attention_plain"),
    text: Cow::Borrowed(concat!(include_str!("sizes.cuh"), include_str!("plain.cu"))),
};

/// Warps per block of the tensor-core kernels.
pub(crate) const WARPS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pass {
    Forward,
    BackwardKeys,
    BackwardQueries,
}

/// Tile sizes of one tensor-core attention kernel: the rows that a block owns, and the columns that it processes per
/// step.
///
/// There is one source per head dim, compiled on first use. Tiles are as large as registers allow without spilling on
/// compute capabilities 8.0, 9.0 and 10.0: the more rows a warp has, the more often it reuses a column read from shared
/// memory. Two or three blocks share a multiprocessor, so that the matmuls of one overlap with the exponentials of
/// another.
///
/// | pass | head | rows, columns | registers (9.0) | shared KiB | blocks on 9.0, 8.0 | limited by |
/// |---|---|---|---|---|---|---|
/// | forward | 64 | 128, 64 | 168 | 36 | 3, 3 | registers |
/// | forward | 128 | 128, 64 | 254 | 68 | 2, 2 | registers |
/// | keys | 64 | 128, 32 | 245 | 54.5 | 2, 2 | registers |
/// | keys | 128 | 64, 64 | 251 | 103 | 2, 1 | both |
/// | queries | 64 | 128, 32 | 168 | 54 | 3, 2 | registers; on 8.0 shared memory |
/// | queries | 128 | 128, 32 | 255 | 102 | 2, 1 | registers; on 8.0 shared memory |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiles {
    pass: Pass,
    head_dim: usize,
    /// Tiles of 16 rows per warp.
    row_tiles: usize,
    /// Columns per step.
    cols: usize,
    /// Blocks per multiprocessor, which divide its registers.
    blocks: usize,
}

impl Tiles {
    /// Returns the tiles of the forward pass.
    pub fn forward(head_dim: usize) -> Tiles {
        let (row_tiles, cols, blocks) = match head_dim {
            ..=64 => (2, 64, 3),
            65..=128 => (2, 64, 2),
            _ => (1, 32, 1),
        };
        Tiles { pass: Pass::Forward, head_dim, row_tiles, cols, blocks }
    }

    /// Returns the tiles of the key and value gradients.
    pub fn backward_keys(head_dim: usize) -> Tiles {
        let (row_tiles, cols, blocks) = match head_dim {
            ..=64 => (2, 32, 2),
            65..=128 => (1, 64, 2),
            _ => (1, 32, 1),
        };
        Tiles { pass: Pass::BackwardKeys, head_dim, row_tiles, cols, blocks }
    }

    /// Returns the tiles of the query gradients.
    pub fn backward_queries(head_dim: usize) -> Tiles {
        let (row_tiles, cols, blocks) = match head_dim {
            ..=64 => (2, 32, 3),
            65..=128 => (2, 32, 2),
            _ => (1, 32, 1),
        };
        Tiles { pass: Pass::BackwardQueries, head_dim, row_tiles, cols, blocks }
    }

    /// Returns the number of rows per block.
    pub fn rows(&self) -> usize {
        WARPS * 16 * self.row_tiles
    }

    /// Returns true if one kernel computes both key and value gradients; otherwise there is one kernel for each.
    pub fn both_gradients(&self) -> bool {
        self.head_dim <= 128
    }

    /// Returns the shared memory per block, in bytes.
    pub fn shared_bytes(&self) -> usize {
        let (rows, numbers) = match self.pass {
            Pass::Forward => (self.rows() + 2 * self.cols, 0),
            Pass::BackwardKeys => (2 * self.rows() + 4 * self.cols, 4 * self.cols),
            Pass::BackwardQueries => (2 * self.rows() + 4 * self.cols, 0),
        };
        let stride = self.head_dim.next_multiple_of(16) + 8;
        2 * rows * stride + 4 * numbers
    }

    /// Returns the source. It is leaked: a program uses few head dims.
    pub fn source(&self) -> &'static Source {
        static KNOWN: Mutex<Option<HashMap<Tiles, &'static Source>>> = Mutex::new(None);
        let mut known = lock(&KNOWN);
        let source = known.get_or_insert_default().entry(*self);
        source.or_insert_with(|| Box::leak(Box::new(self.generate())))
    }

    fn generate(&self) -> Source {
        let &Tiles { pass, head_dim, row_tiles, cols, blocks } = self;
        let (name, kernels) = match pass {
            Pass::Forward => ("forward", include_str!("forward.cu")),
            Pass::BackwardKeys => (
                "backward_keys",
                concat!(include_str!("backward.cuh"), include_str!("backward_keys.cu")),
            ),
            Pass::BackwardQueries => (
                "backward_queries",
                concat!(include_str!("backward.cuh"), include_str!("backward_queries.cu")),
            ),
        };
        let text = format!(
            "#define HEAD_DIM {head_dim}\n#define WARPS {WARPS}\n#define ROW_TILES {row_tiles}\n#define COLS {cols}\n\
             #define BLOCKS {blocks}\n{}{}{kernels}",
            include_str!("sizes.cuh"),
            include_str!("tiles.cuh"),
        );
        // Leaked to a borrowed text, so that clones are free.
        Source {
            name: Cow::Owned(format!("attention_{name}_{head_dim}")),
            text: Cow::Borrowed(text.leak()),
        }
    }
}

//! Sources and tile sizes of the attention kernels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use crate::KernelSource;
use crate::gpu::lock_unpoisoned;

/// Declares a source of kernels without tensor cores, with dropout or without it.
macro_rules! plain_source {
    ($name:literal, $dropout:literal, $kernels:literal) => {
        KernelSource {
            name: Cow::Borrowed($name),
            text: Cow::Borrowed(concat!(
                "#define DROPOUT ",
                $dropout,
                "\n",
                include_str!("../philox.cuh"),
                include_str!("sizes.cuh"),
                include_str!("dropout.cuh"),
                include_str!("plain.cuh"),
                include_str!($kernels)
            )),
        }
    };
}

/// The attention kernels without tensor cores.
pub static PLAIN: KernelSource = plain_source!("attention_plain", 0, "plain.cu");

/// The same with dropout of weights, compiled on first use.
pub static PLAIN_DROPOUT: KernelSource = plain_source!("attention_plain_dropout", 1, "plain.cu");

/// The gradient of distance biases.
pub static BIAS: KernelSource = plain_source!("attention_bias", 0, "bias.cu");

/// The same with dropout of weights, compiled on first use.
pub static BIAS_DROPOUT: KernelSource = plain_source!("attention_bias_dropout", 1, "bias.cu");

/// Kernels around attention that all implementations use.
pub static AUXILIARY: KernelSource = KernelSource {
    name: Cow::Borrowed("attention_auxiliary"),
    text: Cow::Borrowed(concat!(include_str!("sizes.cuh"), include_str!("auxiliary.cu"))),
};

/// Warps per block of the tensor-core kernels.
pub(crate) const WARPS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PlainPass {
    Forward,
    BackwardKeys,
    BackwardQueries,
}

/// Additions of a tensor-core kernel to causal or full attention with results in bf16. Every combination is compiled on
/// its own, so that none pays for unused features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Variant {
    /// Reads the keys of each query from memory: windows and key ranges.
    pub ranges: bool,
    /// Caps scores.
    pub soft_cap: bool,
    /// Adds a distance bias to scores.
    pub bias: bool,
    /// Adds a sink to the keys of each query, in the forward pass.
    pub sinks: bool,
    /// Drops weights.
    pub dropout: bool,
    /// Writes results in f32.
    pub wide: bool,
    /// Accumulates results.
    pub accumulate: bool,
}

impl Variant {
    /// Returns the flags and their names.
    fn flags(&self) -> [(bool, &'static str); 7] {
        let &Variant { ranges, soft_cap, bias, sinks, dropout, wide, accumulate } = self;
        [
            (ranges, "RANGES"),
            (soft_cap, "SOFT_CAP"),
            (bias, "BIAS"),
            (sinks, "SINKS"),
            (dropout, "DROPOUT"),
            (wide, "WIDE"),
            (accumulate, "ACCUMULATE"),
        ]
    }

    /// Returns true if scores are converted or weights dropped one by one, which takes registers.
    fn converts(&self) -> bool {
        self.soft_cap || self.bias || self.dropout
    }

    /// Returns true if scores need more registers than in causal attention.
    fn is_large(&self) -> bool {
        self.ranges || self.converts()
    }
}

/// Returns true if the forward pass of head sizes from 65 to 128 has registers for 64 columns per step: as the compiler
/// allocates them, head sizes of 128, up to 80, and up to 96 without ranges do.
fn fits_wide_steps([keys, values]: [usize; 2], variant: Variant) -> bool {
    keys == values && (keys == 128 || keys <= 80 || keys <= 96 && !variant.ranges)
}

/// Tile sizes of one tensor-core attention kernel: the rows that a block owns, and the columns that it processes per
/// step.
///
/// There is one source per pair of head sizes and [`Variant`], compiled on first use. Tiles are as large as registers
/// allow without spilling on compute capabilities 8.0, 9.0 and 10.0, as `kernel_check` shows for usual
/// head sizes and variants: the more rows a warp has, the more often it reuses a column read from shared memory. Two or
/// three blocks share a multiprocessor, so that the matmuls of one overlap with the exponentials of another.
///
/// | pass | head | rows, columns | registers (9.0) | shared KiB | blocks on 9.0, 8.0 | limited by |
/// |---|---|---|---|---|---|---|
/// | forward | 64 | 128, 64 | 168 | 36 | 3, 3 | registers |
/// | forward | 128 | 128, 64 | 253 | 68 | 2, 2 | registers |
/// | keys | 64 | 128, 32 | 241 | 54.5 | 2, 2 | registers |
/// | keys | 128 | 64, 64 | 253 | 103 | 2, 1 | both |
/// | queries | 64 | 128, 32 | 168 | 54 | 3, 2 | registers; on 8.0 shared memory |
/// | queries | 128 | 128, 32 | 254 | 102 | 2, 1 | registers; on 8.0 shared memory |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionTiles {
    pass: PlainPass,
    /// Elements of one head of queries and keys, and of values.
    dims: [usize; 2],
    variant: Variant,
    /// Tiles of 16 rows per warp.
    row_tiles: usize,
    /// Columns per step.
    cols: usize,
    /// Blocks per multiprocessor, which divide its registers.
    blocks: usize,
}

impl AttentionTiles {
    /// Returns the tiles of the forward pass; `dims` are the elements of one head of queries and keys, and of values.
    pub fn forward(dims: [usize; 2], variant: Variant) -> AttentionTiles {
        let (row_tiles, cols, blocks) = match dims[0].max(dims[1]) {
            ..=64 if variant.dropout => (2, 32, 2),
            ..=64 if variant.is_large() => (2, 64, 2),
            ..=64 => (2, 64, 3),
            65..=128 if variant.dropout => (1, 64, 2),
            65..=128 if variant.converts() || variant.wide => (2, 32, 2),
            65..=128 if fits_wide_steps(dims, variant) => (2, 64, 2),
            65..=128 => (2, 32, 2),
            // Sums are as wide as values.
            129..=192 if dims[1] <= 128 => (1, 64, 2),
            _ => (1, 32, 1),
        };
        AttentionTiles { pass: PlainPass::Forward, dims, variant, row_tiles, cols, blocks }
    }

    /// Returns the tiles of the key and value gradients.
    pub fn backward_keys(dims: [usize; 2], variant: Variant) -> AttentionTiles {
        let (row_tiles, cols, blocks) = match dims[0].max(dims[1]) {
            ..=64 if variant.ranges && variant.bias => (1, 64, 2),
            ..=64 => (2, 32, 2),
            65..=128 if variant.converts() => (1, 32, 2),
            65..=128 => (1, 64, 2),
            _ => (1, 32, 1),
        };
        AttentionTiles { pass: PlainPass::BackwardKeys, dims, variant, row_tiles, cols, blocks }
    }

    /// Returns the tiles of the query gradients.
    pub fn backward_queries(dims: [usize; 2], variant: Variant) -> AttentionTiles {
        let (row_tiles, cols, blocks) = match dims[0].max(dims[1]) {
            ..=64 if variant.converts() => (2, 32, 2),
            ..=64 => (2, 32, 3),
            65..=128 if variant.is_large() => (1, 64, 2),
            65..=128 => (2, 32, 2),
            _ => (1, 32, 1),
        };
        AttentionTiles { pass: PlainPass::BackwardQueries, dims, variant, row_tiles, cols, blocks }
    }

    /// Returns the number of rows per block.
    pub fn rows(&self) -> usize {
        WARPS * 16 * self.row_tiles
    }

    /// Returns true if one kernel computes both key and value gradients; otherwise there is one kernel for each.
    pub fn both_gradients(&self) -> bool {
        self.dims.iter().all(|dim| *dim <= 128)
    }

    /// Returns the shared memory per block, in bytes.
    pub fn shared_bytes(&self) -> usize {
        let (rows, cols) = (self.rows(), self.cols);
        let [of_keys, of_values] = self.dims.map(|dim| dim.next_multiple_of(16) + 8);
        let both = of_keys + of_values;
        let ranges = usize::from(self.variant.ranges);
        let (elements, numbers) = match self.pass {
            PlainPass::Forward => (rows * of_keys + cols * both, 2 * ranges * rows),
            PlainPass::BackwardKeys => ((rows + 2 * cols) * both, (4 + 4 * ranges) * cols),
            PlainPass::BackwardQueries => ((rows + 2 * cols) * both, 2 * ranges * rows),
        };
        2 * elements + 4 * numbers
    }

    /// Returns the source. It is leaked: a program uses few head dims and variants.
    pub fn source(&self) -> &'static KernelSource {
        static KNOWN: Mutex<Option<HashMap<AttentionTiles, &'static KernelSource>>> =
            Mutex::new(None);
        let mut known = lock_unpoisoned(&KNOWN);
        let source = known.get_or_insert_default().entry(*self);
        source.or_insert_with(|| Box::leak(Box::new(self.generate())))
    }

    fn generate(&self) -> KernelSource {
        let &AttentionTiles { pass, dims: [head_dim, value_dim], variant, row_tiles, cols, blocks } =
            self;
        let (name, kernels) = match pass {
            PlainPass::Forward => ("forward", include_str!("forward.cu")),
            PlainPass::BackwardKeys => (
                "backward_keys",
                concat!(include_str!("backward.cuh"), include_str!("backward_keys.cu")),
            ),
            PlainPass::BackwardQueries => (
                "backward_queries",
                concat!(include_str!("backward.cuh"), include_str!("backward_queries.cu")),
            ),
        };
        let mut name = format!("attention_{name}_{head_dim}");
        if value_dim != head_dim {
            name += &format!("_{value_dim}");
        }
        let mut text = format!(
            "#define HEAD_DIM {head_dim}\n#define VALUE_DIM {value_dim}\n#define WARPS {WARPS}\n\
             #define ROW_TILES {row_tiles}\n#define COLS {cols}\n#define BLOCKS {blocks}\n"
        );
        for (on, flag) in variant.flags() {
            text += &format!("#define {flag} {}\n", u8::from(on));
            if on {
                name += &format!("_{}", flag.to_lowercase());
            }
        }
        text += concat!(
            include_str!("../philox.cuh"),
            include_str!("sizes.cuh"),
            include_str!("dropout.cuh"),
            include_str!("tiles.cuh"),
            include_str!("scores.cuh"),
            include_str!("dropout_tiles.cuh")
        );
        text += kernels;
        // Leaked to a borrowed text, so that clones are free.
        KernelSource { name: Cow::Owned(name), text: Cow::Borrowed(text.leak()) }
    }
}

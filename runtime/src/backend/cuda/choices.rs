//! Algorithms that a driver has chosen, for reports.

use super::driver::MatMul;
use super::trial::Trial;

/// The algorithms that a driver has chosen so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    /// Matmuls.
    pub products: Vec<ProductChoice>,
    /// Attention by a vendor library.
    pub attention: Vec<AttentionChoice>,
}

/// The algorithm of matmuls of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductChoice {
    /// Shape and dtypes.
    pub shape: MatMul,
    /// Alignment of the addresses of the operands, in bytes, in the library's order.
    pub alignment: [u32; 3],
    /// Configuration of the algorithm, by the library's numbers.
    pub settings: String,
    /// Workspace, in bytes.
    pub workspace: usize,
    /// Origin of the choice.
    pub origin: Origin,
}

/// Origin of the choice of an algorithm.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// The first proposal of the library's heuristic.
    Proposed,
    /// The autotuning cache: the algorithm was chosen by an earlier or a concurrent process.
    Kept,
    /// Autotuning in this process.
    Tried {
        /// Index of the chosen algorithm among the heuristic's proposals.
        way: usize,
        /// Timings of all candidates.
        trials: Vec<Trial>,
    },
}

/// The implementation of attention of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionChoice {
    /// Pass and sizes.
    pub name: String,
    /// Batch size.
    pub batch: usize,
    /// Samples per call; `None` if the shape is not supported.
    pub samples: Option<usize>,
    /// Scratch memory, in bytes.
    pub scratch: usize,
    /// Kernels of the execution plan, or the reason why there is none.
    pub kernels: String,
}

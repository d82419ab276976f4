//! Algorithms that a driver has chosen, for reports.

use super::autotune::AlgorithmTiming;
use super::matmul::MatMul;

/// The algorithms that a driver has chosen so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AlgorithmChoices {
    /// Matmuls.
    pub matmuls: Vec<MatMulChoice>,
    /// Attention, by a vendor library or by the project's own kernels.
    pub attention: Vec<AttentionChoice>,
}

/// The algorithm of matmuls of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct MatMulChoice {
    /// Shape and dtypes.
    pub shape: MatMul,
    /// Alignment of the addresses of the operands, in bytes, in the library's order.
    pub alignment: [u32; 3],
    /// Configuration of the algorithm, by the library's numbers.
    pub configuration: String,
    /// Workspace, in bytes.
    pub workspace: usize,
    /// Origin of the choice.
    pub origin: ChoiceOrigin,
}

/// Origin of the choice of an algorithm.
#[derive(Debug, Clone, PartialEq)]
pub enum ChoiceOrigin {
    /// The first proposal of the library's heuristic.
    Heuristic,
    /// The autotuning cache: the algorithm was chosen by an earlier or a concurrent process.
    Cached,
    /// Autotuning in this process.
    Autotuned {
        /// Index of the chosen algorithm among the heuristic's proposals.
        algorithm: usize,
        /// Timings of all candidates.
        timings: Vec<AlgorithmTiming>,
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

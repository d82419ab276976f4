//! What a driver has chosen among several ways, for reports.

use super::driver::MatMul;
use super::trial::Trial;

/// How a driver computes, of what it was asked so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    /// Matrix products.
    pub products: Vec<ProductChoice>,
    /// Attention by the vendor's library.
    pub attention: Vec<AttentionChoice>,
}

/// How products of a shape are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductChoice {
    /// Their sizes.
    pub shape: MatMul,
    /// By how many bytes the addresses of the operands can be divided, as the library takes them.
    pub alignment: [u32; 3],
    /// The library's settings.
    pub settings: String,
    /// Bytes that they need beside their operands.
    pub workspace: usize,
    /// How it was found.
    pub origin: Origin,
}

/// How a way to compute a product was found.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// It is the library's first proposal.
    Proposed,
    /// It was tried in an earlier process, or at the same time in another one.
    Kept,
    /// It was tried.
    Tried {
        /// Its number among those that the library has proposed.
        way: usize,
        /// How all of them did.
        trials: Vec<Trial>,
    },
}

/// How attention of a shape is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionChoice {
    /// The pass, and its sizes.
    pub name: String,
    /// Samples.
    pub batch: usize,
    /// Samples that are computed at a time; `None` if it is not supported.
    pub samples: Option<usize>,
    /// Bytes of scratch.
    pub scratch: usize,
    /// The kernels of a plan, or why there is none.
    pub kernels: String,
}

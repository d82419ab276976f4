//! Options of low-rank adapters, and their rank as a dim.

use crate::layout::{Here, Local, Whole};

/// Low-rank adapters of the linear layers of a model, whose other parameters are frozen: a layer computes `x W +
/// alpha / rank * (x A) B` (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021). A part of
/// [`Sizes`](super::Sizes).
///
/// A begins with uniform numbers up to `1 / sqrt(inputs)`, and B with zeros. Both are split over `tp` as the weight is
/// on their side, so that an adapter adds no collective to forward.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraOptions {
    /// Columns of A and rows of B, at least 1.
    pub rank: usize,
    /// Scale of the adapters, which is divided by their rank.
    pub alpha: f32,
    /// The fields that get adapters, [`Linear`](super::Linear) or [`Affine`](super::Affine), named as in
    /// [`Sizes::with_optional`](super::Sizes::with_optional).
    pub targets: Vec<String>,
    /// Fields that are trained beside the adapters, such as norms, named alike.
    pub train: Vec<String>,
}

/// The rank of adapters, as a dim: [`LoraOptions::rank`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoraRank;

#[diagnostic::do_not_recommend]
impl Whole for LoraRank {
    const DECLARED_NAME: &'static str = "LoraRank";
    type Home = Here;
}

#[diagnostic::do_not_recommend]
impl Local for LoraRank {}

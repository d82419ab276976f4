//! RMSNorm and LayerNorm over rows.

use super::LeafGrad;
use crate::{DryRunBackend, View, ViewMut};

/// Normalization kernels.
pub trait NormOps {
    /// Computes `y = x * inv_rms * (offset + weight)` with `inv_rms = 1 / sqrt(mean(x^2) + eps)` per row (Zhang and
    /// Sennrich 2019; with an offset of 1, Gemma Team 2024).
    fn rms_norm(&self, args: RmsNormArgs);
    /// Computes the backward of [`rms_norm`](Self::rms_norm).
    fn rms_norm_backward(&self, args: RmsNormBackwardArgs);
    /// Computes the sums that these need of rows whose other columns are on other ranks.
    fn rms_norm_sums(&self, args: RmsNormSumsArgs);

    /// Computes `y = (x - mean) * inv_std * weight + bias` with `inv_std = 1 / sqrt(var + eps)` per row, `var` the
    /// biased variance (Ba, Kiros and Hinton 2016).
    fn layer_norm(&self, args: LayerNormArgs);
    /// Computes the backward of [`layer_norm`](Self::layer_norm).
    fn layer_norm_backward(&self, args: LayerNormBackwardArgs);
}

impl NormOps for DryRunBackend {
    fn rms_norm(&self, _: RmsNormArgs) {}
    fn rms_norm_backward(&self, _: RmsNormBackwardArgs) {}
    fn rms_norm_sums(&self, _: RmsNormSumsArgs) {}
    fn layer_norm(&self, _: LayerNormArgs) {}
    fn layer_norm_backward(&self, _: LayerNormBackwardArgs) {}
}

/// A residual that is added to the input of a norm in the same kernel. The norm is of the rounded sum.
pub struct ResidualSum<'a> {
    /// The other term, `[rows, cols]`.
    pub term: View<'a>,
    /// `x + term`, `[rows, cols]`, written.
    pub sum: ViewMut<'a>,
}

/// Operands of [`NormOps::rms_norm`].
pub struct RmsNormArgs<'a> {
    /// Input, `[rows, cols]`.
    pub x: View<'a>,
    /// A residual to add to `x` first.
    pub residual: Option<ResidualSum<'a>>,
    /// Gain, `[cols]`.
    pub weight: View<'a>,
    /// Added to the gain.
    pub offset: f32,
    /// Added to the mean square.
    pub eps: f32,
    /// The sums of squares of whole rows, if other ranks have other columns of them; else they are computed.
    pub squares: Option<RowSums<'a>>,
    /// Output, `[rows, cols]`, written.
    pub y: ViewMut<'a>,
    /// Inverse root mean square of each row, f32 `[rows]`, written.
    pub inv_rms: ViewMut<'a>,
}

/// Operands of [`NormOps::rms_norm_backward`].
pub struct RmsNormBackwardArgs<'a> {
    /// Input of the forward pass.
    pub x: View<'a>,
    /// Gain.
    pub weight: View<'a>,
    /// Added to the gain.
    pub offset: f32,
    /// Statistics of the forward pass, f32.
    pub inv_rms: View<'a>,
    /// Gradient of the output.
    pub dy: View<'a>,
    /// The sums of `x * (offset + weight) * dy` of whole rows, if other ranks have other columns of them; else they are
    /// computed.
    pub dots: Option<RowSums<'a>>,
    /// Gradient of the input. One that accumulates holds the gradient of the residual connection around the norm.
    pub dx: LeafGrad<'a>,
    /// Gradient of the gain, f32, if required.
    pub dweight: Option<LeafGrad<'a>>,
}

/// Sums over whole rows, whose other columns other ranks have.
#[derive(Clone, Copy)]
pub struct RowSums<'a> {
    /// A sum for each row, f32 `[rows]`.
    pub sums: View<'a>,
    /// Columns of a whole row.
    pub cols: usize,
}

/// Operands of [`NormOps::rms_norm_sums`].
pub struct RmsNormSumsArgs<'a> {
    /// Columns of a row on this rank.
    pub cols: usize,
    /// Input of the norm, `[rows, cols]`.
    pub x: View<'a>,
    /// The factors of `x` in backward: the sums are those of `x * (offset + weight) * dy`. Without them, of squares.
    pub factors: Option<GainAndGradient<'a>>,
    /// The sum over the columns of each row, f32 `[rows]`, written.
    pub sums: ViewMut<'a>,
}

/// The gain of an RMSNorm, and the gradient of its output.
#[derive(Clone, Copy)]
pub struct GainAndGradient<'a> {
    /// Gain, `[cols]`.
    pub weight: View<'a>,
    /// Added to the gain.
    pub offset: f32,
    /// Gradient of the output, `[rows, cols]`.
    pub dy: View<'a>,
}

/// Operands of [`NormOps::layer_norm`].
pub struct LayerNormArgs<'a> {
    /// Input, `[rows, cols]`.
    pub x: View<'a>,
    /// A residual to add to `x` first.
    pub residual: Option<ResidualSum<'a>>,
    /// Gain, `[cols]`.
    pub weight: View<'a>,
    /// Bias, `[cols]`.
    pub bias: View<'a>,
    /// Added to the variance.
    pub eps: f32,
    /// Output, `[rows, cols]`, written.
    pub y: ViewMut<'a>,
    /// Mean of each row, f32 `[rows]`, written.
    pub mean: ViewMut<'a>,
    /// Inverse standard deviation of each row, f32 `[rows]`, written.
    pub inv_std: ViewMut<'a>,
}

/// Operands of [`NormOps::layer_norm_backward`].
pub struct LayerNormBackwardArgs<'a> {
    /// Input of the forward pass.
    pub x: View<'a>,
    /// Gain.
    pub weight: View<'a>,
    /// Means of the forward pass, f32.
    pub mean: View<'a>,
    /// Inverse standard deviations of the forward pass, f32.
    pub inv_std: View<'a>,
    /// Gradient of the output.
    pub dy: View<'a>,
    /// Gradient of the input, as in [`RmsNormBackwardArgs::dx`].
    pub dx: LeafGrad<'a>,
    /// Gradient of the gain, f32, if required.
    pub dweight: Option<LeafGrad<'a>>,
    /// Gradient of the bias, f32, if required.
    pub dbias: Option<LeafGrad<'a>>,
}

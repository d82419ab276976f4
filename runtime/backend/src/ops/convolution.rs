//! Convolutions along a sequence.

use super::LeafGrad;
use crate::{DType, DryRunBackend, View, ViewMut};

/// Kernels for convolutions.
pub trait ConvolutionOps {
    /// Computes a depthwise causal convolution: `y[b, t, c]` is the sum over `d` of `x[b, t - d, c] * weight[c, taps -
    /// 1 - d]`, or its adjoint, the sum of `x[b, t + d, c] * weight[c, taps - 1 - d]`.
    fn causal_conv(&self, shape: &CausalConvShape, args: CausalConvArgs);
    /// Computes the gradient of the weight: `dweight[c, taps - 1 - d]` is the sum over samples and positions of `x[b,
    /// t, c] * dy[b, t + d, c]`.
    fn causal_conv_weight_grad(&self, shape: &CausalConvShape, args: CausalConvWeightGradArgs);

    /// Copies the elements that each output of a convolution reads: `out[b, t, c, k]` is `x[b, t * stride + k -
    /// padding, c]`, or zero beyond the ends of the sequence. Both operands have the same dtype.
    fn unfold(&self, shape: &UnfoldShape, x: View, out: ViewMut);
    /// Computes the backward of [`unfold`](Self::unfold): each element of `dx` is the sum of the elements of `dout`
    /// that it was copied to, in ascending order of `k`.
    fn fold(&self, shape: &UnfoldShape, dout: View, dx: ViewMut);
}

impl ConvolutionOps for DryRunBackend {
    fn causal_conv(&self, _: &CausalConvShape, _: CausalConvArgs) {}
    fn causal_conv_weight_grad(&self, _: &CausalConvShape, _: CausalConvWeightGradArgs) {}
    fn unfold(&self, _: &UnfoldShape, _: View, _: ViewMut) {}
    fn fold(&self, _: &UnfoldShape, _: View, _: ViewMut) {}
}

/// Sizes of a depthwise causal convolution over the positions of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CausalConvShape {
    /// Samples.
    pub batch: usize,
    /// The ranges of positions of each sample, one after the other. The second one may be empty.
    pub ranges: [PositionRange; 2],
    /// Channels.
    pub channels: usize,
    /// Positions that an output reads, its own included: at least 1.
    pub taps: usize,
}

/// Consecutive positions of a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PositionRange {
    /// Number of positions.
    pub len: usize,
    /// Position of the first one in the whole sequence.
    pub start: usize,
}

impl CausalConvShape {
    /// Positions of a sample.
    pub fn positions(&self) -> usize {
        self.ranges[0].len + self.ranges[1].len
    }

    /// Rows of all samples.
    pub fn rows(&self) -> usize {
        self.batch * self.positions()
    }

    /// Elements of an operand.
    pub fn elements(&self) -> usize {
        self.rows() * self.channels
    }

    /// Number of ranges with a halo.
    pub fn halo_ranges(&self) -> usize {
        self.ranges.iter().filter(|range| range.len > 0).count()
    }

    /// Elements of the halos of all samples.
    pub fn halo_elements(&self) -> usize {
        self.batch * self.halo_ranges() * (self.taps - 1) * self.channels
    }

    /// Checks operands with an element for each position and channel, of the dtype of the first one.
    ///
    /// # Panics
    /// If one does not fit.
    #[doc(hidden)]
    pub fn check_operands(&self, operands: &[View], neighbors: Neighbors, weight: usize) {
        let dtype = operands[0].dtype();
        for operand in operands {
            assert_eq!((operand.len(), operand.dtype()), (self.elements(), dtype), "{self:?}");
        }
        assert!(self.taps > 0 && (self.ranges[0].len > 0 || self.ranges[1].len == 0), "{self:?}");
        assert_eq!(weight, self.channels * self.taps, "weights of {self:?}");
        if let Some(halo) = neighbors.halo {
            assert_eq!(
                (halo.len(), halo.dtype()),
                (self.halo_elements(), dtype),
                "halo of {self:?}"
            );
        }
        if let Some(limits) = neighbors.limits {
            assert_eq!((limits.len(), limits.dtype()), (self.rows(), DType::U32), "{self:?}");
        }
    }
}

/// The elements next to each range of positions, and the elements that belong together.
#[derive(Clone, Copy, Default)]
pub struct Neighbors<'a> {
    /// `[batch, nonempty ranges, taps - 1, channels]`: the elements on the side of each range that the operation reads
    /// from, in ascending order of positions; zeros if `None`.
    pub halo: Option<View<'a>>,
    /// The end of the positions that belong together, for each row, u32: on the side before the row the first one that
    /// it may read, on the side behind it the first one that it may not read. All may be read if `None`.
    pub limits: Option<View<'a>>,
}

/// Operands of [`ConvolutionOps::causal_conv`].
pub struct CausalConvArgs<'a> {
    /// Input, `[batch, positions, channels]`.
    pub x: View<'a>,
    /// Elements before each range, or behind it if `adjoint`.
    pub neighbors: Neighbors<'a>,
    /// Weight, `[channels, taps]`.
    pub weight: View<'a>,
    /// Computes the adjoint, which reads the following positions.
    pub adjoint: bool,
    /// Output, `[batch, positions, channels]`, written.
    pub y: ViewMut<'a>,
}

/// Operands of [`ConvolutionOps::causal_conv_weight_grad`].
pub struct CausalConvWeightGradArgs<'a> {
    /// Input of the convolution, `[batch, positions, channels]`.
    pub x: View<'a>,
    /// Gradient of its output.
    pub dy: View<'a>,
    /// Gradients behind each range.
    pub neighbors: Neighbors<'a>,
    /// Gradient of the weight, f32 `[channels, taps]`.
    pub dweight: LeafGrad<'a>,
}

/// Sizes of the elements that the outputs of a convolution along a whole sequence read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfoldShape {
    /// Samples.
    pub batch: usize,
    /// Positions of an input sample.
    pub len: usize,
    /// Channels.
    pub channels: usize,
    /// Positions that an output reads.
    pub taps: usize,
    /// Distance between the first positions of consecutive outputs.
    pub stride: usize,
    /// Zeros before the first position, and behind the last one.
    pub padding: usize,
}

impl UnfoldShape {
    /// Returns the number of outputs of a sample; `None` if the padded sequence is shorter than the taps.
    pub fn output_len(&self) -> Option<usize> {
        let room = (self.len + 2 * self.padding).checked_sub(self.taps)?;
        Some(room / self.stride + 1)
    }

    /// Returns the elements of the input, and of the output.
    ///
    /// # Panics
    /// If the padded sequence is shorter than the taps.
    pub fn elements(&self) -> [usize; 2] {
        let outputs = self.output_len().expect("a padded sequence is at least as long as the taps");
        let of = |positions: usize| self.batch * positions * self.channels;
        [of(self.len), of(outputs) * self.taps]
    }
}

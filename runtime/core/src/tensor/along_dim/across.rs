//! Methods of tensors along a dim that the ranks of some axes hold together.

use crate::layout::{Dims, ReadsAcross, refuse_routed};
use meshwright_backend::DimReduction;

use super::super::Tensor;
use super::AlongDim;
use super::extreme::extreme;
use super::log_sum_exp::log_sum_exp;
use super::running_sum::running_sum;
use super::softmax::{log_softmax, softmax};
use super::spread::{norm, variance};

/// A tensor that ranks read together along a dim that is split over `tp`, or declared over `cp`: the result of
/// [`Tensor::across`].
///
/// Results are complete and equal on the ranks of these axes; the ranks exchange numbers for each result, never the
/// elements. Backward needs no collective, but for the softmaxes and
/// running sums.
#[derive(Debug)]
pub struct Across<'a, S: Dims>(&'a Tensor<S>);

impl<'a, S: Dims> Across<'a, S> {
    pub(super) fn new(x: &'a Tensor<S>) -> Across<'a, S> {
        Across(x)
    }

    /// Returns the largest element along `dim`, as [`Tensor::max`]: one all-reduce of the maximum, and while the tape
    /// records one of its index, since the gradient flows to the first of equal elements.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., ..]`.
    #[track_caller]
    pub fn max<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
    {
        let along = self.along(dim, "Across::max");
        Tensor::from_untyped(extreme(self.0.value(), along, DimReduction::Largest))
    }

    /// Returns the smallest element along `dim`, as [`Tensor::min`]: the all-reduces of [`max`](Self::max).
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., ..]`.
    #[track_caller]
    pub fn min<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
    {
        let along = self.along(dim, "Across::min");
        Tensor::from_untyped(extreme(self.0.value(), along, DimReduction::Smallest))
    }

    /// Returns the variance along `dim`, as [`Tensor::var`]: one all-reduce of the mean, and one of the mean square of
    /// the distance from it.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., ..]`.
    #[track_caller]
    pub fn var<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
    {
        Tensor::from_untyped(variance(self.0.value(), self.along(dim, "Across::var")))
    }

    /// Returns the Euclidean norm along `dim`, as [`Tensor::norm`]: one all-reduce of the sum of squares.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., ..]`.
    #[track_caller]
    pub fn norm<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
    {
        Tensor::from_untyped(norm(self.0.value(), self.along(dim, "Across::norm")))
    }

    /// Returns `log(sum(exp(x)))` along `dim`, as [`Tensor::log_sum_exp`]: one all-reduce of the maximum, and one of
    /// the sum of exponentials relative to it.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., ..]`.
    #[track_caller]
    pub fn log_sum_exp<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
    {
        let along = self.along(dim, "Across::log_sum_exp");
        Tensor::from_untyped(log_sum_exp(self.0.value(), along))
    }

    /// Returns this rank's shard of the softmax along `dim`, as [`Tensor::softmax_over`]: the two all-reduces of
    /// [`log_sum_exp`](Self::log_sum_exp), and in backward one of the sum of products with the gradient.
    #[track_caller]
    pub fn softmax_over<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: ReadsAcross<S, P>,
    {
        Tensor::from_untyped(softmax(self.0.value(), self.along(dim, "Across::softmax_over")))
    }

    /// Returns this rank's shard of the log-softmax along `dim`, as [`Tensor::log_softmax_over`]: the two all-reduces
    /// of [`log_sum_exp`](Self::log_sum_exp), and in backward one of the sum of the gradient.
    #[track_caller]
    pub fn log_softmax_over<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: ReadsAcross<S, P>,
    {
        let along = self.along(dim, "Across::log_softmax_over");
        Tensor::from_untyped(log_softmax(self.0.value(), along))
    }

    /// Returns this rank's shard of the running sums along `dim`, as [`Tensor::cumsum`]: one all-gather of the sum of
    /// each range of elements that a rank holds, and one in backward.
    #[track_caller]
    pub fn cumsum<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: ReadsAcross<S, P>,
    {
        let AlongDim { position, site, .. } = self.along(dim, "Across::cumsum");
        Tensor::from_untyped(running_sum(self.0.value(), S::DIMS, position, site))
    }

    /// Returns the tensor.
    pub(super) fn tensor(&self) -> &'a Tensor<S> {
        self.0
    }

    #[track_caller]
    pub(super) fn along<D, P>(&self, dim: D, function: &'static str) -> AlongDim
    where
        D: ReadsAcross<S, P>,
    {
        const { refuse_routed::<S>() };
        let _: D = dim;
        AlongDim::new(self.0.value(), D::DIM, D::AXES, function)
    }
}

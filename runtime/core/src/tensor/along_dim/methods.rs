//! Methods of tensors along a dim that each rank holds whole.

use crate::layout::{AxisSet, Dims, Reads, refuse_routed};
use meshwright_backend::DimReduction;

use super::super::{LastLocal, Tensor};
use super::extreme::extreme;
use super::log_sum_exp::log_sum_exp;
use super::softmax::{log_softmax, softmax};
use super::spread::{norm, variance};
use super::{Across, AlongDim};

impl<S: Dims> Tensor<S> {
    /// Returns the largest element along `dim`; NaN if one is NaN.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    ///
    /// The gradient flows to one element, the first one if several are equal, as of `torch.max(dim)`. The maximum of
    /// two tensors is another function.
    #[track_caller]
    pub fn max<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
    {
        let along = self.along(dim, "Tensor::max");
        Tensor::from_untyped(extreme(self.value(), along, DimReduction::Largest))
    }

    /// Returns the smallest element along `dim`; NaN if one is NaN.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    ///
    /// The gradient flows to one element, the first one if several are equal, as of `torch.min(dim)`.
    #[track_caller]
    pub fn min<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
    {
        let along = self.along(dim, "Tensor::min");
        Tensor::from_untyped(extreme(self.value(), along, DimReduction::Smallest))
    }

    /// Returns the variance along `dim`: the mean square of the distance from the mean. It is that of the population,
    /// divided by the number of elements and not by one less (`correction=0` in PyTorch).
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    #[track_caller]
    pub fn var<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
    {
        Tensor::from_untyped(variance(self.value(), self.along(dim, "Tensor::var")))
    }

    /// Returns the Euclidean norm along `dim`, the square root of the sum of squares. Its gradient at a norm of 0 is 0.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    #[track_caller]
    pub fn norm<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
    {
        Tensor::from_untyped(norm(self.value(), self.along(dim, "Tensor::norm")))
    }

    /// Returns `log(sum(exp(x)))` along `dim`, from exponentials relative to the largest element. Of elements that are
    /// all -infinity it is -infinity, with a gradient of 0.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    #[track_caller]
    pub fn log_sum_exp<D, P>(&self, dim: D) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
    {
        let along = self.along(dim, "Tensor::log_sum_exp");
        Tensor::from_untyped(log_sum_exp(self.value(), along))
    }

    /// Returns `exp(x) / sum(exp(x))` along `dim`: [`softmax`](Self::softmax) over any dim. Elements that are all
    /// -infinity give NaN.
    #[track_caller]
    pub fn softmax_over<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: Reads<S, P>,
    {
        Tensor::from_untyped(softmax(self.value(), self.along(dim, "Tensor::softmax_over")))
    }

    /// Returns `x - log(sum(exp(x)))` along `dim`, the logarithm of [`softmax_over`](Self::softmax_over).
    #[track_caller]
    pub fn log_softmax_over<D, P>(&self, dim: D) -> Tensor<S>
    where
        D: Reads<S, P>,
    {
        let along = self.along(dim, "Tensor::log_softmax_over");
        Tensor::from_untyped(log_softmax(self.value(), along))
    }

    /// Returns `x - log(sum(exp(x)))` over the last dim, the logarithm of [`softmax`](Self::softmax).
    #[track_caller]
    pub fn log_softmax(&self) -> Tensor<S>
    where
        S: LastLocal,
    {
        const { refuse_routed::<S>() };
        let last = S::DIMS.len() - 1;
        let along = AlongDim::new(self.value(), last, AxisSet::NONE, "Tensor::log_softmax");
        Tensor::from_untyped(log_softmax(self.value(), along))
    }

    /// Reads along a dim together with the other ranks that hold its shards: `x.across().log_sum_exp(Vocab)`. The
    /// methods name their collectives.
    pub fn across(&self) -> Across<'_, S> {
        Across::new(self)
    }

    #[track_caller]
    fn along<D, P>(&self, dim: D, function: &'static str) -> AlongDim
    where
        D: Reads<S, P>,
    {
        const { refuse_routed::<S>() };
        let _: D = dim;
        AlongDim::new(self.value(), D::DIM, AxisSet::NONE, function)
    }
}

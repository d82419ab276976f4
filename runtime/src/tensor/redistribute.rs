//! Redistribution of tensors: a split dim is gathered, a whole dim is split.

use crate::autograd::tensor_parallel;
use crate::comm::Site;
use crate::context::scope;
use crate::layout::{Axis, Dims, GatherDim, SplitDim};

use super::{InFlight, Tensor};

impl<S: Dims> Tensor<S> {
    /// Makes a split dim whole on every rank: all-gather forward, own shard backward.
    #[track_caller]
    pub fn gather<D, P>(&self, dim: D) -> Tensor<D::Out>
    where
        D: GatherDim<S, P>,
    {
        let _: D = dim;
        let site = Site::here(scope::current_or("Tensor::gather"));
        Tensor::wrap(tensor_parallel::gather(self.value(), <D::Axis as Axis>::ID, D::DIM, &site))
    }

    /// [`gather`](Self::gather) in the background: the tensor arrives with `.wait()`.
    #[track_caller]
    pub fn start_gather<D, P>(&self, dim: D) -> InFlight<Tensor<D::Out>>
    where
        D: GatherDim<S, P>,
    {
        let _: D = dim;
        let site = Site::here(scope::current_or("Tensor::start_gather"));
        InFlight::gather(self.value(), <D::Axis as Axis>::ID, D::DIM, &site)
    }

    /// Splits a whole dim over an axis: own shard forward, all-gather backward.
    #[track_caller]
    pub fn slice<D, A: Axis, P>(&self, dim: D, axis: A) -> Tensor<D::Out>
    where
        D: SplitDim<S, A, P>,
    {
        let (_, _): (D, A) = (dim, axis);
        let site = Site::here(scope::current_or("Tensor::slice"));
        Tensor::wrap(tensor_parallel::slice(self.value(), A::ID, D::DIM, &site))
    }
}

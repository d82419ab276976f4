//! Sums and means of the elements for which a mask is true.

use std::sync::Arc;

use crate::autograd::{Pointwise, Value};
use crate::layout::{AxisSet, Dims, Reads, ReadsAcross, SumOver, refuse_routed};
use meshwright_backend::{Buffer, Node, View};

use super::super::covers::Covers;
use super::super::mask::MaskOf;
use super::super::reduce::{SumState, Summed};
use super::super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};
use super::{Across, AlongDim, as_activation, map_statistics, wide_gradient};

impl<S: Dims> Tensor<S> {
    /// Returns the sum along `dim` of the elements for which the mask is true, as [`sum`](Self::sum) of
    /// [`masked`](Self::masked) elements: a partial sum if the dim is split, or distributed by declaration.
    ///
    /// Shape: `[.., D, ..], mask [.., D, ..] -> [.., ..]`, for a mask with the dims of the tensor or some of them.
    #[track_caller]
    pub fn sum_where<D, M, P, R>(&self, dim: D, mask: &M) -> Summed<S, D, P>
    where
        M: MaskOf<S, R>,
        M::Out: Covers<S>,
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let masked = mask.replace_others(self, 0.0);
        Tensor::<S>::from_untyped(masked.value().clone()).sum(dim)
    }

    /// Returns the mean along `dim` of the elements for which the mask is true: their sum divided by their number, both
    /// in f32. Of no elements it is 0, with a gradient of 0.
    ///
    /// Shape: `[.., D, ..], mask [.., D, ..] -> [.., ..]`, for a mask with the dims of the tensor or some of them.
    ///
    /// Along a dim that is split over `tp`, or declared over `cp`, it is `x.across().mean_where(Seq, &mask)`.
    #[track_caller]
    pub fn mean_where<D, M, P, R>(&self, dim: D, mask: &M) -> Tensor<D::Left>
    where
        D: Reads<S, P>,
        M: MaskOf<S, R>,
        M::Out: Covers<S>,
    {
        const { refuse_routed::<S>() };
        let _: D = dim;
        let along = AlongDim::new(self.value(), D::DIM, AxisSet::NONE, "Tensor::mean_where");
        Tensor::from_untyped(masked_mean(self, mask, along))
    }
}

impl<S: Dims> Across<'_, S> {
    /// Returns the mean along `dim` of the elements for which the mask is true, as [`Tensor::mean_where`]: one
    /// all-reduce of the sums, and one of the numbers of elements.
    ///
    /// Shape: `[.., Split<D, A>, ..], mask [.., Split<D, A>, ..] -> [.., ..]`, for a mask with the dims of the tensor
    /// or some of them.
    #[track_caller]
    pub fn mean_where<D, M, P, R>(&self, dim: D, mask: &M) -> Tensor<D::Left>
    where
        D: ReadsAcross<S, P>,
        M: MaskOf<S, R>,
        M::Out: Covers<S>,
    {
        let along = self.along(dim, "Across::mean_where");
        Tensor::from_untyped(masked_mean(self.tensor(), mask, along))
    }
}

#[track_caller]
fn masked_mean<S: Dims, M: MaskOf<S, R>, R>(x: &Tensor<S>, mask: &M, along: AlongDim) -> Value {
    let (rank, extents) = (x.rank(), x.local_extents().to_vec());
    let ones = Tensor::from_untyped(Value::deferred(rank, extents, Pointwise::number(1.0)));
    let [terms, weights] = [mask.replace_others(x, 0.0), mask.replace_others(&ones, 0.0)];
    let extents = along.extents_left(x.value());
    let inputs = [&terms, &weights].map(|of| OperationInput::new(of.value(), InBackward::Ignores));
    apply(MaskedMean { along }, Operands { rank, path: "", inputs, params: [], extents })
}

/// The mean of the terms whose weight is 1; the others are 0, terms and weights.
struct MaskedMean {
    along: AlongDim,
}

impl Operation<Count<2>, Count<0>> for MaskedMean {
    /// The part of each element that counts in the mean of its column.
    type Saved = AlwaysRecomputed<Buffer>;

    fn forward(&self, forward: OperationForward<'_, Count<2>, Count<0>>) -> (Buffer, Buffer) {
        let OperationForward { rank, inputs, .. } = forward;
        let [terms, weights] = inputs.map(|input| input.compute().data);
        let [sum, count] = [&terms, &weights].map(|of| self.along.sum(rank, of.view(), 1.0));
        let quotient = |nodes: [Node; 2], leaves: &[View<'_>]| {
            let divisor = [Node::Leaf(0), Node::Constant(1.0), Node::Max(0, 1)];
            map_statistics(rank, divisor.into_iter().chain(nodes).collect(), leaves)
        };
        let mean = quotient([Node::Leaf(1), Node::Div(3, 2)], &[count.view(), sum.view()]);
        let share = quotient([Node::Constant(1.0), Node::Div(3, 2)], &[count.view()]);
        (as_activation(rank, &mean), share)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<2>, Count<0>>,
        AlwaysRecomputed(share): AlwaysRecomputed<Buffer>,
    ) {
        let OperationBackward { gradients, inputs: [terms, _], gradient: dy, .. } = backward;
        let rank = gradients.rank;
        let dy = wide_gradient(rank, &dy, 1.0);
        let nodes = vec![Node::Leaf(0), Node::Leaf(1), Node::Mul(0, 1)];
        let dy = map_statistics(rank, nodes, &[dy.view(), share.view()]);
        let mut dx = rank.alloc_activation(self.along.columns() * self.along.dim.len);
        rank.backend().broadcast_dim(self.along.dim, dy.view(), dx.view_mut(), 1.0);
        terms.add_gradient(gradients, Arc::new(dx));
    }
}

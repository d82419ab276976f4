//! Sums and means over a dim: a tensor if this rank holds all of the dim, else a partial sum.

use std::panic::Location;
use std::sync::Arc;

use crate::autograd::{Binary, Value};
use crate::context::{Rank, elements_along, scope};
use crate::layout::{Cp, Data, Dims, Dp, Ep, Fsdp, Here, Internal, Pp, SumOver, Tp};
use meshwright_backend::{Buffer, DType, MiddleDim};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{check_sizes, local_len};
use meshwright_mesh::Extent;

use super::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Partial, Targets, Tensor, apply,
};

/// Result of a sum over a dim: a [`Tensor`] if the home of the dim is [`Here`], else a [`Partial`] over its axes.
pub trait SumState<S> {
    /// The result.
    type Out;
    #[doc(hidden)]
    fn from_value(value: Value, site: Site, internal: Internal) -> Self::Out;
}

impl<S: Dims> SumState<S> for Here {
    type Out = Tensor<S>;

    fn from_value(value: Value, _: Site, _: Internal) -> Tensor<S> {
        Tensor::from_untyped(value)
    }
}

macro_rules! partial_over {
    ($($axis:ident),*) => {$(
        impl<S: Dims> SumState<S> for $axis {
            type Out = Partial<S, $axis>;

            fn from_value(value: Value, site: Site, _: Internal) -> Partial<S, $axis> {
                Partial::from_untyped(value, site)
            }
        }
    )*};
}

partial_over! { Data, Pp, Dp, Fsdp, Ep, Cp, Tp }

/// The sum of a tensor shaped `S` over dim `D`.
pub(super) type Summed<S, D, P> =
    <<S as SumOver<D, P>>::PartialOver as SumState<<S as SumOver<D, P>>::Left>>::Out;

impl<S: Dims> Tensor<S> {
    /// Returns the sum over `dim`, or over two or three dims together, `x.sum((Seq, Hidden))`: a partial sum if a dim
    /// is split, or distributed by declaration, as one of several may be.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    #[track_caller]
    pub fn sum<D, P>(&self, dim: D) -> Summed<S, D, P>
    where
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let _: D = dim;
        let site = Site::new(scope::current_or("Tensor::sum")).at_location(Location::caller());
        <S::PartialOver as SumState<S::Left>>::from_value(
            sum(self.value(), <S as SumOver<D, P>>::positions(Internal::new()), 1.0),
            site,
            Internal::new(),
        )
    }

    /// Returns the mean over all of `dim`, or of two or three dims, across ranks: a partial sum if a dim is split,
    /// or distributed by declaration.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    ///
    /// Over the rows of a batch it is the mean of the micro-batch that the tensor is computed from: of its rows on all
    /// ranks.
    #[track_caller]
    pub fn mean<D, P>(&self, dim: D) -> Summed<S, D, P>
    where
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let _: D = dim;
        let site = Site::new(scope::current_or("Tensor::mean")).at_location(Location::caller());
        let positions = <S as SumOver<D, P>>::positions(Internal::new());
        let along = |position: &usize| {
            let (info, extent) = (&S::DIMS[*position], &self.local_extents()[*position]);
            elements_along(info, extent, self.rank(), &site)
        };
        let factor = 1.0 / positions.iter().map(along).product::<usize>() as f32;
        <S::PartialOver as SumState<S::Left>>::from_value(
            sum(self.value(), positions, factor),
            site,
            Internal::new(),
        )
    }
}

/// Returns `factor` times the sum over this rank's part of the dims at these positions, in ascending order.
#[track_caller]
fn sum(x: &Value, positions: Vec<usize>, factor: f32) -> Value {
    let mut extents = x.extents().to_vec();
    let mut dims = Vec::new();
    // From the last dim on, neighbors together.
    for neighbors in positions.chunk_by(|a, b| a + 1 == *b).rev() {
        let (first, end) = (neighbors[0], neighbors[0] + neighbors.len());
        let [outer, len, inner] =
            [&extents[..first], &extents[first..end], &extents[end..]].map(local_len);
        dims.push(MiddleDim { outer, len, inner });
        extents.drain(first..end);
    }
    apply_sum(x, SumOperation { dims, factor, alloc: Rank::alloc_activation }, extents)
}

/// Returns the sum of all elements on this rank, in f32.
#[track_caller]
pub(super) fn sum_of_elements(x: &Value) -> Value {
    let dim = MiddleDim { outer: 1, len: local_len(x.extents()), inner: 1 };
    let dims = vec![dim];
    apply_sum(x, SumOperation { dims, factor: 1.0, alloc: Rank::alloc_statistics }, Vec::new())
}

/// Returns the sum of the elements of `terms` on this rank whose target is not ignored.
#[track_caller]
pub(super) fn sum_over_targets<S: Dims>(terms: &Tensor<S>, targets: &Targets<S>) -> Value {
    let rank = terms.rank();
    rank.check_same(targets.rank());
    let extents = terms.local_extents();
    check_sizes(S::DIMS, ("the terms", extents), ("their targets", targets.local_extents()));
    let mut mask = rank.alloc_activation(local_len(extents));
    rank.backend().cast(targets.counted_targets().view(), mask.view_mut());
    let mask = Value::constant(rank, extents.to_vec(), mask);
    let product = terms.value().to_pointwise().binary(mask.to_pointwise(), Binary::Mul);
    sum_of_elements(&Value::deferred(rank, extents.to_vec(), product))
}

#[track_caller]
fn apply_sum(x: &Value, operation: SumOperation, extents: Vec<Extent>) -> Value {
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    apply(operation, Operands { rank: x.rank(), path: "", inputs, params: [], extents })
}

/// `factor` times the sum over dims; its backward reads no operand.
struct SumOperation {
    /// The dims in the order in which they are summed over; sums of all but the last are f32.
    dims: Vec<MiddleDim>,
    factor: f32,
    /// Allocates the output, in the dtype of activations or in f32.
    alloc: fn(&Rank, usize) -> Buffer,
}

impl Operation<Count<1>, Count<0>> for SumOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let (last, first) = self.dims.split_last().expect("a sum is over one dim or more");
        let mut of_first: Option<Buffer> = None;
        for dim in first {
            let mut sums = rank.alloc_scratch(DType::F32, dim.outer * dim.inner);
            let terms = of_first.as_ref().unwrap_or(&x).view();
            rank.backend().sum_dim(*dim, terms, sums.view_mut(), 1.0);
            of_first = Some(sums);
        }
        let mut out = (self.alloc)(rank, last.outer * last.inner);
        let terms = of_first.as_ref().unwrap_or(&x).view();
        rank.backend().sum_dim(*last, terms, out.view_mut(), self.factor);
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let rank = gradients.rank;
        let (first, others) = self.dims.split_first().expect("a sum is over one dim or more");
        let mut of_others: Option<Buffer> = None;
        let mut factor = self.factor;
        for dim in others.iter().rev() {
            let mut sums = rank.alloc_scratch(DType::F32, dim.outer * dim.len * dim.inner);
            let dy = of_others.as_ref().unwrap_or(&dy).view();
            rank.backend().broadcast_dim(*dim, dy, sums.view_mut(), factor);
            (of_others, factor) = (Some(sums), 1.0);
        }
        let mut dx = rank.alloc_activation(first.outer * first.len * first.inner);
        let dy = of_others.as_ref().unwrap_or(&dy).view();
        rank.backend().broadcast_dim(*first, dy, dx.view_mut(), factor);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

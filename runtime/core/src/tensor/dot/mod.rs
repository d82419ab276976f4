//! Products of two tensors, summed over dims that both have.

mod operation;
mod plan;

use std::panic::Location;

use crate::autograd::Value;
use crate::context::scope;
use crate::layout::{DimInfo, Dims, DotDims, Internal, Shape, refuse_repeated, refuse_routed};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{check_sizes, local_len};
use meshwright_mesh::Extent;

use super::reduce::SumState;
use super::shapes::{position_of, strides};
use super::{InBackward, Operands, OperationInput, Tensor, apply, enter_regions};

use operation::DotOperation;
use plan::Loop;

type Product<S, T, C, B, P> =
    <<C as DotDims<S, T, B, P>>::PartialOver as SumState<<C as DotDims<S, T, B, P>>::Out>>::Out;

impl<S: Dims> Tensor<S> {
    /// Multiplies two tensors and sums over a dim that both have, or over a pair, for each element of the dims `each`,
    /// which both have, too: a batched matmul. The result has the dims `each`, then the others of this tensor, then the
    /// others of `other`; it is a partial sum if a dim that is summed over is split, or distributed by declaration.
    ///
    ///
    /// A dim that both have, and that is neither summed over nor in `each`, would be twice in the result. This does not
    /// build, since the heads are not named:
    ///
    /// ```compile_fail
    /// use meshwright::prelude::*;
    ///
    /// dims! { Batch @ data, Seq, Keys, Heads, HeadDim }
    ///
    /// fn main() {
    ///     meshwright::run_on("1", 7, |rank| {
    ///         let q: Tensor<(Batch, Seq, Heads, HeadDim)> = Tensor::from_fn(rank, &[1, 2, 2, 2], |_| 1.0);
    ///         q.dot(&q.rename(Seq, Keys), HeadDim, (Batch,));
    ///         Ok(())
    ///     })
    ///     .unwrap();
    /// }
    /// ```
    ///
    /// Shape: `[B, M, K], [B, N, K] -> [B, M, N]`, by `x.dot(&y, K, (B,))`. Dims are named unsplit.
    ///
    /// # Panics
    /// If a dim that both have has two sizes.
    #[track_caller]
    pub fn dot<T: Dims, C, B, P>(
        &self,
        other: &Tensor<T>,
        over: C,
        each: B,
    ) -> Product<S, T, C, B, P>
    where
        C: DotDims<S, T, B, P>,
        C::Out: Shape,
        C::PartialOver: SumState<C::Out>,
    {
        let (_, _): (C, B) = (over, each);
        const {
            refuse_routed::<S>();
            refuse_routed::<T>();
            refuse_repeated::<C::Out>();
        }
        let site = Site::new(scope::current_or("Tensor::dot")).at_location(Location::caller());
        let [x, y] = [(self.value(), C::ENTERS[0]), (other.value(), C::ENTERS[1])]
            .map(|(value, axes)| enter_regions(value, axes, &site));
        check_shared((S::DIMS, &x), (T::DIMS, &y));
        let (loops, extents) = loops((S::DIMS, &x), (T::DIMS, &y), <C::Out as Dims>::DIMS);
        let lens = [x.len(), y.len(), local_len(&extents)];
        let inputs = [&x, &y].map(|value| OperationInput::new(value, InBackward::Reads));
        let operands = Operands { rank: x.rank(), path: "", inputs, params: [], extents };
        let value = apply(DotOperation { loops, lens }, operands);
        <C::PartialOver as SumState<C::Out>>::from_value(value, site, Internal::new())
    }
}

/// Checks that the dims that both operands have are of one size.
#[track_caller]
fn check_shared((left, x): (&[DimInfo], &Value), (right, y): (&[DimInfo], &Value)) {
    for (dim, extent) in left.iter().zip(x.extents()) {
        if let Some(position) = position_of(dim, right) {
            let other = y.extents()[position];
            check_sizes(
                &[*dim],
                ("the left side of a product", &[*extent]),
                ("the right side", &[other]),
            );
        }
    }
}

/// Returns the loops of a product: over the dims of the result, then over those that are summed over. Also returns the
/// extents of the result.
fn loops(
    (left, x): (&[DimInfo], &Value),
    (right, y): (&[DimInfo], &Value),
    out: &[DimInfo],
) -> (Vec<Loop>, Vec<Extent>) {
    let places = |dim: &DimInfo| [position_of(dim, left), position_of(dim, right)];
    let extents: Vec<Extent> = out
        .iter()
        .map(|dim| match places(dim) {
            [Some(left), _] => x.extents()[left],
            [None, Some(right)] => y.extents()[right],
            [None, None] => unreachable!("a dim of a product is one of its operands"),
        })
        .collect();
    let of = [strides(x.extents()), strides(y.extents())];
    let out_strides = strides(&extents);
    let strides_of = |dim: &DimInfo| {
        let [left, right] = places(dim);
        [left.map(|at| of[0][at]), right.map(|at| of[1][at])]
    };
    let kept = out.iter().zip(&extents).zip(&out_strides).map(|((dim, extent), stride)| {
        let [a, b] = strides_of(dim);
        Loop { size: extent.local, strides: [a, b, Some(*stride)] }
    });
    let is_summed = |dim: &DimInfo| position_of(dim, out).is_none();
    let summed =
        left.iter().zip(x.extents()).filter(|(dim, _)| is_summed(dim)).map(|(dim, extent)| {
            let [a, b] = strides_of(dim);
            Loop { size: extent.local, strides: [a, b, None] }
        });
    (kept.chain(summed).collect(), extents)
}

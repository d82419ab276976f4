//! Elements taken by their index.

use std::panic::Location;

use crate::context::scope;
use crate::layout::{
    Dim, DimInfo, Dims, IndexedDims, Internal, Shape, Whole, refuse_repeated, refuse_routed,
};
use crate::tensor::reduce::SumState;
use crate::tensor::shapes::position_of;
use crate::tensor::{InBackward, Operands, OperationInput, Tensor, apply, enter_regions};
use meshwright_backend::IndexedDim;
use meshwright_comm::Site;
use meshwright_mesh::__internal::{check_sizes, local_len};
use meshwright_mesh::Extent;

use super::operation::{Direction, IndexOperation};
use super::{Index, in_order, reordered};

type Taken<S, T, D, B, P> = <<D as IndexedDims<S, T, B, P>>::PartialOver as SumState<
    <D as IndexedDims<S, T, B, P>>::Out,
>>::Out;

impl<S: Dims> Tensor<S> {
    /// Takes elements along a dim by their index, for each element of the dims `each`, which tensor and indices both
    /// have. The result has the dims `each`, then the others of the indices, then the others of the tensor; it is a
    /// partial sum if the dim is split, or distributed by declaration, since each rank takes what it holds.
    ///
    /// Shape: `[B, D, H], [B, J] -> [B, J, H]`, by `x.take(&index, (B,))`.
    ///
    /// # Panics
    /// If the dim has another size than the indices count, or a dim of `each` has two sizes.
    #[track_caller]
    pub fn take<T: Dims, D, B, P>(&self, index: &Index<D, T>, each: B) -> Taken<S, T, D, B, P>
    where
        D: Whole + IndexedDims<S, T, B, P>,
        D::Out: Shape,
        D::PartialOver: SumState<D::Out>,
    {
        let _: B = each;
        const {
            refuse_routed::<S>();
            refuse_routed::<T>();
            refuse_repeated::<D::Out>();
        }
        let rank = self.rank();
        rank.check_same(index.rank());
        let site = Site::new(scope::current_or("Tensor::take")).at_location(Location::caller());
        let x = enter_regions(self.value(), D::ENTERS, &site);
        let is_dim = |dim: &DimInfo| (dim.key)() == (<D as Dim>::INFO.key)();
        let position = S::DIMS.iter().position(is_dim).expect("the dim is one of the tensor");
        let taken = x.extents()[position];
        check_index(&S::DIMS[position], &taken, index.size);
        assert!(
            !rank.holds_part_of_batch(&S::DIMS[position], &taken),
            "the elements of `{}` are in several micro-batches, and those of the others would be zero: take them \
             outside of the model, or compute the batch as one micro-batch",
            D::DECLARED_NAME
        );
        let out = <D::Out as Dims>::DIMS;
        let each: Vec<DimInfo> = out
            .iter()
            .filter(|dim| {
                position_of(dim, S::DIMS).is_some() && position_of(dim, T::DIMS).is_some()
            })
            .copied()
            .collect();
        let others = |dims: &[DimInfo], not: Option<usize>| -> Vec<DimInfo> {
            let is_other = |(at, dim): &(usize, &DimInfo)| {
                Some(*at) != not && position_of(dim, &each).is_none()
            };
            dims.iter().enumerate().filter(is_other).map(|(_, dim)| *dim).collect()
        };
        let (rest, more) = (others(S::DIMS, Some(position)), others(T::DIMS, None));
        let of = |dim: &DimInfo| match position_of(dim, S::DIMS) {
            Some(at) => x.extents()[at],
            None => {
                index.extents
                    [position_of(dim, T::DIMS).expect("a dim of the result is one of both")]
            }
        };
        let extents_of = |dims: &[DimInfo]| -> Vec<Extent> { dims.iter().map(of).collect() };
        for dim in &each {
            let own = index.extents[position_of(dim, T::DIMS).expect("both have the dim")];
            check_sizes(&[*dim], ("the tensor", &[of(dim)]), ("the indices", &[own]));
        }
        let order = [&each[..], &[S::DIMS[position]], &rest].concat();
        let index_order = reordered(T::DIMS, &index.extents, &[&each[..], &more].concat());
        let (before, skipped) = taken.gap();
        let operation = IndexOperation {
            direction: Direction::Take,
            shape: IndexedDim {
                outer: local_len(&extents_of(&each)),
                len: taken.local,
                inner: local_len(&extents_of(&rest)),
                count: local_len(&extents_of(&more)),
                is_elementwise: false,
                first: taken.offset,
                gap: [before, skipped],
            },
            indices: in_order(rank, index_order.as_ref(), index.read()),
            ordered: reordered(S::DIMS, x.extents(), &order),
        };
        let inputs = [OperationInput::new(&x, InBackward::Ignores)];
        let operands =
            Operands { rank: x.rank(), path: "", inputs, params: [], extents: extents_of(out) };
        let value = apply(operation, operands);
        <D::PartialOver as SumState<D::Out>>::from_value(value, site, Internal::new())
    }
}

/// Checks that indices count the elements of a dim.
///
/// # Panics
/// If the dim has another size.
#[track_caller]
fn check_index(info: &DimInfo, extent: &Extent, size: usize) {
    assert!(
        extent.global == size,
        "dim `{}` has {} elements, but the indices are those of one with {size}: take the indices from \
         a tensor of the same size",
        info.name,
        extent.global
    );
}

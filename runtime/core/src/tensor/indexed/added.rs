//! Elements added up by their index.

use std::panic::Location;

use crate::context::scope;
use crate::layout::{
    AddedDims, DimInfo, Dims, Internal, Shape, Whole, refuse_repeated, refuse_routed,
};
use crate::tensor::reduce::SumState;
use crate::tensor::shapes::position_of;
use crate::tensor::{InBackward, Operands, OperationInput, Tensor, apply};
use meshwright_backend::IndexedDim;
use meshwright_comm::Site;
use meshwright_mesh::__internal::{check_sizes, local_len};
use meshwright_mesh::Extent;

use super::operation::{Direction, IndexOperation};
use super::{Index, in_order, reordered};

type Added<S, T, F, D, B, P> = <<F as AddedDims<S, T, D, B, P>>::PartialOver as SumState<
    <F as AddedDims<S, T, D, B, P>>::Out,
>>::Out;

impl<S: Dims> Tensor<S> {
    /// Adds up elements along a dim `over`, each to the element of `D` that its index is, for each element of the dims
    /// `each`. Elements of `D` without an index are zero. The result has the dims `each`, then `D`, then the others of
    /// the tensor; it is a partial sum if `over` is split, or distributed by declaration.
    ///
    /// Shape: `[B, J, H], [B, J] -> [B, D, H]`, by `x.scatter_add(&index, J, (B,))`. Sums are in f32.
    ///
    /// # Panics
    /// If a dim of the indices has another size in the tensor.
    #[track_caller]
    pub fn scatter_add<T: Dims, D: Whole, F, B, P>(
        &self,
        index: &Index<D, T>,
        over: F,
        each: B,
    ) -> Added<S, T, F, D, B, P>
    where
        F: AddedDims<S, T, D, B, P>,
        F::Out: Shape,
        F::PartialOver: SumState<F::Out>,
    {
        let (_, _): (F, B) = (over, each);
        const {
            refuse_routed::<S>();
            refuse_repeated::<F::Out>();
        }
        let rank = self.rank();
        rank.check_same(index.rank());
        let site =
            Site::new(scope::current_or("Tensor::scatter_add")).at_location(Location::caller());
        let x = self.value();
        for (dim, extent) in T::DIMS.iter().zip(&index.extents) {
            let own = x.extents()
                [position_of(dim, S::DIMS).expect("the tensor has the dims of the indices")];
            check_sizes(&[*dim], ("the tensor", &[own]), ("the indices", &[*extent]));
        }
        let out = <F::Out as Dims>::DIMS;
        let select = |dims: &[DimInfo], is: &dyn Fn(&DimInfo) -> bool| -> Vec<DimInfo> {
            dims.iter().filter(|dim| is(dim)).copied().collect()
        };
        let is_index = |dim: &DimInfo| position_of(dim, T::DIMS).is_some();
        let is_kept = |dim: &DimInfo| position_of(dim, out).is_some();
        let each = select(out, &is_index);
        let summed = select(S::DIMS, &|dim| !is_kept(dim));
        let rest = select(S::DIMS, &|dim| !is_index(dim));
        let of = |dim: &DimInfo| match position_of(dim, S::DIMS) {
            Some(at) => x.extents()[at],
            None => Extent::whole(index.size),
        };
        let len_of = |dims: &[DimInfo]| dims.iter().map(|dim| of(dim).local).product();
        let index_order = reordered(T::DIMS, &index.extents, &[&each[..], &summed].concat());
        let operation = IndexOperation {
            direction: Direction::Add,
            shape: IndexedDim {
                outer: len_of(&each),
                len: index.size,
                inner: len_of(&rest),
                count: len_of(&summed),
                is_elementwise: false,
                first: 0,
                gap: [index.size, 0],
            },
            indices: in_order(rank, index_order.as_ref(), index.read()),
            ordered: reordered(S::DIMS, x.extents(), &[&each[..], &summed, &rest].concat()),
        };
        let extents: Vec<Extent> = out.iter().map(of).collect();
        debug_assert_eq!(
            local_len(&extents),
            operation.shape.outer * index.size * operation.shape.inner
        );
        let inputs = [OperationInput::new(x, InBackward::Ignores)];
        let operands = Operands { rank, path: "", inputs, params: [], extents };
        <F::PartialOver as SumState<F::Out>>::from_value(
            apply(operation, operands),
            site,
            Internal::new(),
        )
    }
}

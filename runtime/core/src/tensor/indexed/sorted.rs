//! The largest elements along a dim, and their indices.

use std::sync::Arc;

use crate::autograd::Value;
use crate::layout::{Dims, Local, Reads, RenameDim, refuse_repeated, refuse_routed};
use crate::tensor::shapes::note_count;
use crate::tensor::{InBackward, Operands, OperationInput, Tensor, apply};
use meshwright_backend::{Buffer, Category, DType, IndexedDim, MiddleDim};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::Index;
use super::operation::{Direction, IndexOperation};

type Renamed<S, D, E, P> = <D as RenameDim<S, E, P>>::Out;

/// Elements shaped `T` of a tensor, and their indices along `D`.
type Largest<D, T> = (Tensor<T>, Index<D, T>);

impl<S: Dims> Tensor<S> {
    /// Returns the `k` largest elements along a dim that each rank holds whole, from the largest one on, as dim `to`,
    /// and their indices. Of equal elements the one with the lower index comes first, and NaN comes before all numbers.
    /// The gradient flows to the elements that were found.
    ///
    /// Shape: `[.., D, ..] -> [.., E, ..]`, twice.
    ///
    /// # Panics
    /// If the dim has fewer than `k` elements.
    #[track_caller]
    pub fn top_k<D, E: Local, P>(&self, dim: D, k: usize, to: E) -> Largest<D, Renamed<S, D, E, P>>
    where
        D: Local + Reads<S, P> + RenameDim<S, E, P>,
    {
        let (_, _): (D, E) = (dim, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<Renamed<S, D, E, P>>();
        }
        let dim = <D as Reads<S, P>>::DIM;
        note_count::<S>(self.rank(), S::VARIES, "the number of largest elements", k);
        let x = self.value();
        let size = x.extents()[dim].global;
        assert!(
            k <= size,
            "dim `{}` has {size} elements, so it has no {k} largest ones: give a number up to {size}",
            D::DECLARED_NAME
        );
        let positions = Arc::new(largest(x, dim, k));
        let mut extents = x.extents().to_vec();
        extents[dim] = Extent::whole(k);
        let [outer, inner] = [local_len(&extents[..dim]), local_len(&extents[dim + 1..])];
        let operation = IndexOperation {
            direction: Direction::Take,
            shape: IndexedDim {
                outer,
                len: size,
                inner,
                count: k,
                is_elementwise: true,
                first: 0,
                gap: [size, 0],
            },
            indices: Arc::clone(&positions),
            ordered: None,
        };
        let inputs = [OperationInput::new(x, InBackward::Ignores)];
        let operands =
            Operands { rank: x.rank(), path: "", inputs, params: [], extents: extents.clone() };
        let values = Tensor::from_untyped(apply(operation, operands));
        (values, Index::of_buffer(self.rank(), extents, positions, size).found_in(x))
    }

    /// Returns the index of the largest element along a dim that each rank holds whole. Of equal elements it is the one
    /// with the lower index; NaN is larger than all numbers.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    ///
    /// # Panics
    /// If the dim has no elements.
    #[track_caller]
    pub fn arg_max<D, P>(&self, dim: D) -> Index<D, D::Left>
    where
        D: Local + Reads<S, P>,
    {
        let _: D = dim;
        const { refuse_routed::<S>() }
        let mut extents = self.local_extents().to_vec();
        let size = extents.remove(D::DIM).global;
        assert!(
            size > 0,
            "dim `{}` has no elements, so none of them is the largest",
            D::DECLARED_NAME
        );
        let positions = Arc::new(largest(self.value(), D::DIM, 1));
        Index::of_buffer(self.rank(), extents, positions, size).found_in(self.value())
    }
}

/// Returns the positions of the `k` largest elements along a dim.
fn largest(x: &Value, dim: usize, k: usize) -> Buffer {
    let (extents, data) = (x.extents(), x.compute().data);
    let [outer, inner] = [local_len(&extents[..dim]), local_len(&extents[dim + 1..])];
    let middle = MiddleDim { outer, len: extents[dim].local, inner };
    let mut positions =
        data.allocator().alloc(DType::U32, outer * k * inner, Category::Activations);
    x.rank().backend().largest(middle, k, data.view(), positions.view_mut());
    positions
}

//! Elements by their index along a dim, and operations that find indices.

mod added;
mod operation;
mod running_sum;
mod sorted;
mod taken;

use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::autograd::{Origin, Value};
use crate::context::{Rank, extents_of};
use crate::layout::{DimInfo, Dims, Shape, Whole};
use meshwright_backend::{Buffer, Category, CopyDim, StridedCopy};
use meshwright_mesh::__internal::{global_sizes, local_len, shape_name};
use meshwright_mesh::Extent;

use super::block_by_index::block_by_index;
use super::shapes::{copied, position_of, strides};

/// Indices shaped `T`, one `u32` each, that count the elements of the **global** dim `D`. A clone shares the numbers.
pub struct Index<D, T> {
    rank: Rank,
    extents: Vec<Extent>,
    on_device: Arc<Buffer>,
    /// Elements of the dim.
    size: usize,
    /// The origin of indices that were found in values with a gradient.
    origin: Option<Rc<Origin>>,
    shape: PhantomData<(D, T)>,
}

impl<D, T> Clone for Index<D, T> {
    fn clone(&self) -> Self {
        let (rank, extents) = (self.rank.clone(), self.extents.clone());
        let (on_device, size) = (Arc::clone(&self.on_device), self.size);
        Index { rank, extents, on_device, size, origin: self.origin.clone(), shape: PhantomData }
    }
}

impl<D: Whole, T: Dims> Index<D, T> {
    /// Creates indices from this rank's block, row-major. `sizes` are the sizes of the **global** dims of the indices,
    /// `size` is that of `D`.
    ///
    /// # Panics
    /// If `block` has another number of elements than the rank's part of `sizes`, or an index is not below `size`.
    #[track_caller]
    pub fn from_block(rank: &Rank, sizes: &[usize], size: usize, block: &[u32]) -> Index<D, T>
    where
        T: Shape,
    {
        let extents = extents_of::<T>(rank, sizes);
        assert_eq!(
            block.len(),
            local_len(&extents),
            "a block of {} indices is not this rank's block of {sizes:?}",
            block.len()
        );
        if let Some(index) = block.iter().find(|index| **index as usize >= size) {
            panic!(
                "dim `{}` has {size} elements, so it has no element {index}: give indices below {size}",
                D::DECLARED_NAME
            );
        }
        let name = || format!("indices of `{}` shaped {}", D::DECLARED_NAME, shape_name(T::DIMS));
        rank.declared_values().note_elements(name, T::VARIES, Location::caller(), block);
        rank.segments().note_numbers(block);
        let on_device = rank.allocator().copy_of(block, Category::Activations);
        Index::of_buffer(rank, extents, Arc::new(on_device), size)
    }

    /// Creates indices whose element at `at` of the **global** tensor is `index(at)`: the same on every mesh.
    ///
    /// # Panics
    /// As [`from_block`](Self::from_block), and if another call of `index` with the same argument returns another
    /// number.
    #[track_caller]
    pub fn from_fn(
        rank: &Rank,
        sizes: &[usize],
        size: usize,
        index: impl Fn(&[usize]) -> usize,
    ) -> Index<D, T>
    where
        T: Shape,
    {
        let extents = extents_of::<T>(rank, sizes);
        let index = |at: &[usize]| u32::try_from(index(at)).unwrap_or(u32::MAX);
        let block = block_by_index(&extents, index, |index| index);
        Index::from_block(rank, sizes, size, &block)
    }

    /// Creates indices below `size`, in a buffer of this rank's block.
    fn of_buffer(
        rank: &Rank,
        extents: Vec<Extent>,
        on_device: Arc<Buffer>,
        size: usize,
    ) -> Index<D, T> {
        Index { rank: rank.clone(), extents, on_device, size, origin: None, shape: PhantomData }
    }

    /// Returns the indices as those that were found in `x` now.
    fn found_in(mut self, x: &Value) -> Index<D, T> {
        if self.rank.is_recording() && x.depends_on_gradients() {
            self.origin = Some(Origin::here(&self.rank));
        }
        self
    }

    /// Returns the numbers for an operation.
    ///
    /// # Panics
    /// If the indices have [another origin](Origin::check_read).
    #[track_caller]
    fn read(&self) -> &Arc<Buffer> {
        if let Some(origin) = &self.origin {
            origin.check_read(&self.rank);
        }
        &self.on_device
    }

    /// Returns the number of elements of each dim of the global indices.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(&self.extents)
    }

    /// Returns the rank that holds the block.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Copies this rank's block, row-major, to the host.
    pub fn to_local_vec(&self) -> Vec<u32> {
        self.on_device.view().to_vec()
    }
}

impl<D: Whole, T: Dims> std::fmt::Debug for Index<D, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index(of {} {}, {})", self.size, D::DECLARED_NAME, shape_name(T::DIMS))
    }
}

/// Returns the copy of a block to another order of its dims; `None` if it has this order.
fn reordered(dims: &[DimInfo], extents: &[Extent], order: &[DimInfo]) -> Option<StridedCopy> {
    let positions: Vec<usize> = order
        .iter()
        .map(|dim| position_of(dim, dims).expect("another order has the same dims"))
        .collect();
    if positions.is_sorted() {
        return None;
    }
    let ordered: Vec<Extent> = positions.iter().map(|dim| extents[*dim]).collect();
    let (from, to) = (strides(extents), strides(&ordered));
    let dims = positions.iter().zip(&ordered).zip(to);
    Some(StridedCopy::new(dims.map(|((dim, extent), dst)| CopyDim {
        size: extent.local,
        src: from[*dim],
        dst,
    })))
}

/// Returns `data` in another order, if `copy` is one.
fn in_order(rank: &Rank, copy: Option<&StridedCopy>, data: &Arc<Buffer>) -> Arc<Buffer> {
    match copy {
        Some(copy) => Arc::new(copied(rank, copy, data, data.len())),
        None => Arc::clone(data),
    }
}

//! One element along a dim.

use std::panic::Location;

use crate::context::scope;
use crate::layout::{Dims, DropDim, Internal, TakeDim, refuse_routed_dim};
use crate::tensor::Tensor;
use crate::tensor::reduce::SumState;
use meshwright_comm::Site;

use super::block_copy::{Run, copy_run};
use super::note_count;

type Selected<S, D, P> =
    <<D as DropDim<S, P>>::PartialOver as SumState<<D as TakeDim<S, P>>::Left>>::Out;

impl<S: Dims> Tensor<S> {
    /// Returns element `index` of the **global** dim: a partial sum if the dim is split, or distributed by declaration,
    /// since one rank has the element and the others add zeros.
    ///
    /// Shape: `[.., D, ..] -> [.., ..]`.
    ///
    /// # Panics
    /// If the dim has no such element, or is the batch and the tensor holds a micro-batch of it.
    #[track_caller]
    pub fn select<D, P>(&self, dim: D, index: usize) -> Selected<S, D, P>
    where
        D: DropDim<S, P>,
        D::PartialOver: SumState<D::Left>,
    {
        let _: D = dim;
        const { refuse_routed_dim::<S>(<D as TakeDim<S, P>>::DIM) }
        let rank = self.rank();
        let site = Site::new(scope::current_or("Tensor::select")).at_location(Location::caller());
        // The ranks that share the dim select one element together.
        note_count::<S>(rank, <D::Left as Dims>::VARIES, "the index of the element", index);
        let (info, mut extents) = (&S::DIMS[D::DIM], self.local_extents().to_vec());
        let taken = extents.remove(D::DIM);
        assert!(
            index < taken.global,
            "dim `{}` has {size} elements, so it has no element {index}: give an index below {size}",
            info.name,
            size = taken.global
        );
        assert!(
            !rank.holds_part_of_batch(info, &taken),
            "one element of `{}` is in one micro-batch only, and the others would have zeros: select it outside of the \
             model, or compute the batch as one micro-batch",
            info.name
        );
        let local = taken.count_before(index);
        let is_here = local < taken.local && taken.index(local) == index;
        let run = Run { from: if is_here { local } else { 0 }, to: 0, len: usize::from(is_here) };
        let value = copy_run(self.value(), D::DIM, run, 1, extents);
        <D::PartialOver as SumState<D::Left>>::from_value(value, site, Internal::new())
    }
}

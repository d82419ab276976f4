//! The same numbers under other dims: a dim by another name, two as one, one as two. Nothing is copied.

use crate::layout::{Dims, JoinDims, PartDim, RenameDim, refuse_repeated, refuse_routed};
use crate::tensor::Tensor;
use meshwright_mesh::Extent;

use super::note_count;

impl<S: Dims> Tensor<S> {
    /// Calls a dim by another name, for an operation that combines two meanings of one dim: `k.rename(Seq, Keys)`.
    ///
    /// Shape: `[.., D, ..] -> [.., E, ..]`.
    #[track_caller]
    pub fn rename<D, E, P>(&self, from: D, to: E) -> Tensor<D::Out>
    where
        D: RenameDim<S, E, P>,
    {
        let (_, _): (D, E) = (from, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<D::Out>();
        }
        Tensor::from_untyped(self.value().unchanged())
    }

    /// Joins two neighboring dims, of sizes `n` and `m`, to one of `n * m` elements. If the first is split or
    /// distributed, so is the result.
    ///
    /// Shape: `[.., D, E, ..] -> [.., F, ..]`.
    ///
    /// # Panics
    /// If the first dim is split into parts of unequal sizes, such that a split of the joined dim would cut elsewhere.
    #[track_caller]
    pub fn join<N, F, P>(&self, dims: N, to: F) -> Tensor<N::Out>
    where
        N: JoinDims<S, F, P>,
    {
        let (_, _): (N, F) = (dims, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<N::Out>();
        }
        let mut extents = self.local_extents().to_vec();
        let inner = extents.remove(N::DIM + 1);
        let first = extents[N::DIM];
        let joined = Extent::flattened(&[first, inner]);
        let info = &S::DIMS[N::DIM];
        let parts = |extent| self.rank().parts_of(info, extent);
        let cuts = parts(&first).into_iter().map(|part| Extent::flattened(&[part, inner]));
        assert!(
            cuts.eq(parts(&joined)),
            "dim `{name}` has {} elements, which are not divided evenly over {}, so `{name}` and `{}` cannot be \
             joined: make it whole first, `.gather({name})`, or give it a size that the ranks divide",
            first.global,
            info.axes(),
            S::DIMS[N::DIM + 1].name,
            name = info.name
        );
        extents[N::DIM] = joined;
        Tensor::from_untyped(self.value().with_extents(extents))
    }

    /// Parts a dim of size `n` into two, the second of `inner` elements and the first of `n / inner`. If the dim is
    /// split or distributed, so is the first.
    ///
    /// Shape: `[.., F, ..] -> [.., D, E, ..]`.
    ///
    /// # Panics
    /// If the part of the dim that a rank holds does not begin and end between groups of `inner` elements.
    #[track_caller]
    pub fn part<F, D, E, P>(&self, from: F, to: (D, E), inner: usize) -> Tensor<F::Out>
    where
        F: PartDim<S, (D, E), P>,
    {
        let (_, _): (F, (D, E)) = (from, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<F::Out>();
        }
        note_count::<S>(self.rank(), S::VARIES, "the size of the inner part", inner);
        let mut extents = self.local_extents().to_vec();
        let (info, extent) = (&S::DIMS[F::DIM], extents[F::DIM]);
        let parts = self.rank().parts_of(info, &extent);
        let first =
            extent.parted(inner).filter(|_| parts.iter().all(|part| part.parted(inner).is_some()));
        let first = first.unwrap_or_else(|| {
            panic!(
                "dim `{}` has {} elements, {} of them on this rank: these are no whole groups of {inner} elements, \
                 which `{}` would have: give a number that divides the elements of each rank",
                info.name,
                extent.global,
                extent.local,
                <F::Out as Dims>::DIMS[F::DIM + 1].name
            )
        });
        extents[F::DIM] = first;
        extents.insert(F::DIM + 1, Extent::whole(inner));
        Tensor::from_untyped(self.value().with_extents(extents))
    }
}

//! Operations that read along a dim of which each rank holds a shard.

use super::sealed::Seal;
use super::{At, Axis, AxisGroup, AxisSet, Cp, Dim, Dims, Here, Split, Tp, Whole};

/// A dim of shape `S` that is split or distributed, whose shards ranks can read together: the ranks have the same
/// samples.
#[diagnostic::on_unimplemented(
    message = "ranks cannot read along `{Self}` of `{S}` together",
    label = "`{Self}` is whole on each rank, distributed over data axes, or not a dim of `{S}`",
    note = "along a whole dim leave out `.across()`",
    note = "a dim `@ data` has the samples of one micro-batch: a maximum over them would depend on how many \
            micro-batches there are"
)]
pub trait ReadsAcross<S, P> {
    /// The other dims, in order.
    type Left: Dims;
    /// The axes over which the dim is split or distributed.
    const AXES: AxisSet;
    /// Position of the dim.
    const DIM: usize;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Axes whose ranks have the same samples.
pub trait SameSamples: AxisGroup {
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! same_samples {
    ($($axis:ident)*) => {$(
        impl SameSamples for $axis {
            const SEAL: Seal = Seal::new();
        }
    )*};
}

same_samples! { Here Cp Tp }

macro_rules! reads_across {
    ($(($($before:ident),*) ($($after:ident),*) at $position:literal)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole<Home = Cp>, $($after: Dim,)*>
            ReadsAcross<($($before,)* D, $($after,)*), At<$position>> for D
        where
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            const AXES: AxisSet = Cp::AXES;
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Dim,)* D: Whole, X: Axis + SameSamples, $($after: Dim,)*>
            ReadsAcross<($($before,)* Split<D, X>, $($after,)*), At<$position>> for D
        where
            D::Home: SameSamples,
            ($($before,)* $($after,)*): Dims,
        {
            type Left = ($($before,)* $($after,)*);
            const AXES: AxisSet = <D::Home as AxisGroup>::AXES.disjoint_union(X::AXES);
            const DIM: usize = $position;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

reads_across! {
    () () at 0
    () (A) at 0  (A) () at 1
    () (A, B) at 0  (A) (B) at 1  (A, B) () at 2
    () (A, B, C) at 0  (A) (B, C) at 1  (A, B) (C) at 2  (A, B, C) () at 3
    () (A, B, C, E) at 0  (A) (B, C, E) at 1  (A, B) (C, E) at 2  (A, B, C) (E) at 3  (A, B, C, E) () at 4
}

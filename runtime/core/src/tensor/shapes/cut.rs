//! A dim cut into parts, each with a name.

use crate::layout::{Dims, Local, Reads, RenameDim, Seal, refuse_repeated, refuse_routed_dim};
use crate::tensor::Tensor;

use super::{check_range, note_count};

/// Names of the parts that dim `D` of shape `S` is cut into: a tuple of two or three dims declared without `@`.
#[diagnostic::on_unimplemented(
    message = "`{D}` of a tensor shaped `{S}` cannot be cut into `{Self}`",
    label = "needs a tuple of two or three dims, each declared without `@`",
    note = "with the sizes of all parts but the last: `x.cut(Qkv, (Query, Key, Value), [64, 64])`"
)]
pub trait CutNames<S: Dims, D, P> {
    /// The sizes of all parts but the last.
    type PartSizes: AsRef<[usize]>;
    /// A tensor for each part.
    type Parts;
    #[doc(hidden)]
    fn cut(x: &Tensor<S>, sizes: &[usize], seal: Seal) -> Self::Parts;
}

/// The sizes `T` of all parts but the last: an array, or of two parts a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are not the sizes of all parts but the last",
    label = "needs a number for two parts, and `[usize; 2]` for three",
    note = "the last part gets the other elements: `x.cut(Kv, (Latent, RopeDim), 512)`, `x.cut(Qkv, (Query, Key, \
            Value), [64, 64])`"
)]
pub trait PartSizes<T> {
    #[doc(hidden)]
    fn part_sizes(self) -> T;
}

impl<const N: usize> PartSizes<[usize; N]> for [usize; N] {
    fn part_sizes(self) -> [usize; N] {
        self
    }
}

impl PartSizes<[usize; 1]> for usize {
    fn part_sizes(self) -> [usize; 1] {
        [self]
    }
}

impl<S: Dims> Tensor<S> {
    /// Cuts a dim that each rank holds whole into parts, in order. `sizes` are those of all parts but the last, which
    /// gets the other elements.
    ///
    /// Shape: `[.., D, ..] -> ([.., E, ..], [.., F, ..])`.
    ///
    /// # Panics
    /// If the parts have more elements than the dim.
    #[track_caller]
    pub fn cut<D, N, P, K>(&self, of: D, to: N, sizes: K) -> N::Parts
    where
        D: Reads<S, P>,
        N: CutNames<S, D, P>,
        K: PartSizes<N::PartSizes>,
    {
        let (_, _): (D, N) = (of, to);
        const { refuse_routed_dim::<S>(<D as Reads<S, P>>::DIM) }
        let sizes = sizes.part_sizes();
        let sizes = sizes.as_ref();
        for size in sizes {
            note_count::<S>(self.rank(), S::VARIES, "the size of a part", *size);
        }
        let (info, size) = (&S::DIMS[D::DIM], self.local_extents()[D::DIM].global);
        let end = sizes.iter().fold(0, |end: usize, size| end.saturating_add(*size));
        assert!(
            end <= size,
            "dim `{}` has {size} elements, so it cannot be cut into parts of {sizes:?} elements and the rest: give \
             parts that have at most {size} elements together",
            info.name
        );
        check_range(info, size, end, size);
        N::cut(self, sizes, Seal::new())
    }
}

macro_rules! cut_names {
    ($($count:literal: $($name:ident)+;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S: Dims, D, P, $($name: Local),+> CutNames<S, D, P> for ($($name,)+)
        where
            D: Reads<S, P> $(+ RenameDim<S, $name, P>)+,
        {
            type PartSizes = [usize; $count];
            type Parts = ($(Tensor<<D as RenameDim<S, $name, P>>::Out>,)+);

            #[track_caller]
            fn cut(x: &Tensor<S>, sizes: &[usize], _: Seal) -> Self::Parts {
                const { $(refuse_repeated::<<D as RenameDim<S, $name, P>>::Out>();)+ }
                let dim = <D as Reads<S, P>>::DIM;
                let len = x.local_extents()[dim].local;
                let mut starts = sizes.iter().scan(0, |start, size| {
                    *start += size;
                    Some(*start)
                });
                let mut start = 0;
                let mut next = || {
                    let end = starts.next().unwrap_or(len);
                    std::mem::replace(&mut start, end)..end
                };
                ($(x.part_of_dim::<<D as RenameDim<S, $name, P>>::Out>(dim, next()),)+)
            }
        }
    )*};
}

cut_names! {
    1: E F;
    2: E F G;
}

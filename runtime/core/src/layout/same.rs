//! Pairs of shapes that elementwise operations combine: equal ones, and one whose dims are dims of the other.

use super::same_shape::SameShape;
use super::sealed::Seal;
use super::{Broadcast, Split, Tp};

impl<X, S> SameShape<S, S> for X {
    type Combined = S;
    const SEAL: Seal = Seal::new();
}

/// Never implemented: the split of `D`, the last dim before the feature, that only one of the shapes `S` and `T` has.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be combined with one shaped `{T}`: only one is split along `{D}`",
    label = "`{D}` is split on one side, and whole on the other",
    note = "a row-parallel layer splits its result by `scatter`: `#[sharded(tp = \"row\", scatter = {D})]` on the \
            layer of the whole side, `#[sharded(tp = \"vocab\", scatter = {D})]` on an embedding",
    note = "`.slice({D}, Tp)` splits a tensor that has the whole dim, `.gather({D})` makes a split one whole"
)]
pub trait Scattered<D, S, T> {
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Never implemented: the split of `D`, which layers write, that only one of the shapes `S` and `T` has.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be combined with one shaped `{T}`: only one is split along `{D}`",
    label = "`{D}` is split on one side, and whole on the other",
    note = "shard the layers of both sides alike: `#[sharded(tp = \"col\")]` on the layer of the whole side, too",
    note = "`.slice({D}, Tp)` splits a tensor that has the whole dim, `.gather({D})` makes a split one whole"
)]
pub trait ShardedAlike<D, S, T> {
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! never_the_same {
    ($(<$($param:ident),+> $dim:ident: $rule:ident, $split:ty, $whole:ty;)*) => {$(
        impl<X, $($param),+> SameShape<$whole, $split> for X
        where
            Split<$dim, Tp>: $rule<$dim, $split, $whole>,
        {
            type Combined = $split;
            const SEAL: Seal = Seal::new();
        }

        impl<X, $($param),+> SameShape<$split, $whole> for X
        where
            Split<$dim, Tp>: $rule<$dim, $whole, $split>,
        {
            type Combined = $whole;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

never_the_same! {
    <S, H> S: Scattered, (Split<S, Tp>, H), (S, H);
    <B, S, H> S: Scattered, (B, Split<S, Tp>, H), (B, S, H);
    <S, H> H: ShardedAlike, (S, Split<H, Tp>), (S, H);
    <S, H> H: ShardedAlike, (S, Split<H, Tp>), (Split<S, Tp>, H);
    <B, S, H> H: ShardedAlike, (B, S, Split<H, Tp>), (B, S, H);
    <B, S, H> H: ShardedAlike, (B, S, Split<H, Tp>), (B, Split<S, Tp>, H);
    <B, S, H, D> H: ShardedAlike, (B, S, Split<H, Tp>, D), (B, S, H, D);
    <B, S, H, D> H: ShardedAlike, (B, S, Split<H, Tp>, D), (B, Split<S, Tp>, H, D);
}

macro_rules! repeated {
    ($(($($large:ident),+) and ($($small:ident),*);)*) => {$(
        impl<X, $($large,)* $($small),*> SameShape<($($small,)*), ($($large,)*)> for X
        where
            ($($small,)*): Broadcast<($($large,)*)>,
        {
            type Combined = ($($large,)*);
            const RIGHT_PLACES: Option<&'static [usize]> = Some(<($($small,)*) as Broadcast<($($large,)*)>>::PLACES);
            const SEAL: Seal = Seal::new();
        }

        impl<X, $($large,)* $($small),*> SameShape<($($large,)*), ($($small,)*)> for X
        where
            ($($small,)*): Broadcast<($($large,)*)>,
        {
            type Combined = ($($large,)*);
            const LEFT_PLACES: Option<&'static [usize]> = Some(<($($small,)*) as Broadcast<($($large,)*)>>::PLACES);
            const SEAL: Seal = Seal::new();
        }
    )*};
}

repeated! {
    (A) and ();
    (A, B) and ();
    (A, B) and (V);
    (A, B, C) and ();
    (A, B, C) and (V);
    (A, B, C) and (V, W);
    (A, B, C, D) and ();
    (A, B, C, D) and (V);
    (A, B, C, D) and (V, W);
    (A, B, C, D) and (V, W, U);
    (A, B, C, D, E) and ();
    (A, B, C, D, E) and (V);
    (A, B, C, D, E) and (V, W);
    (A, B, C, D, E) and (V, W, U);
    (A, B, C, D, E) and (V, W, U, Y);
}

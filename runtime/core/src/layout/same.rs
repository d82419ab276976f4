//! Equality of shapes: elementwise operations combine tensors of the same shape, without broadcasting.

use super::sealed::Seal;
use super::{Split, Tp};

/// A shape that elementwise operations can combine with `Self`: the same dims, split alike.
///
/// Impls with a bound that nothing has are for mistakes: their bounds explain the fix. The shape is a parameter, and
/// not `Self`, so that other messages do not list the impls.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{S}` cannot be combined with one shaped `{T}`",
    label = "their dims or splits differ, or are not known to be the same",
    note = "both sides must have the same dims, split alike: `.gather(Dim)` makes a `Split<Dim, A>` whole, \
            `.slice(Dim, Tp)` splits a whole dim; one declared `@` stays distributed",
    note = "rows of experts go back to their tokens first: `routing.combine(&rows)`"
)]
pub trait SameShape<T: ?Sized, S: ?Sized = Self> {}

impl<X, S> SameShape<S, S> for X {}

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
        impl<X, $($param),+> SameShape<$whole, $split> for X where Split<$dim, Tp>: $rule<$dim, $split, $whole> {}

        impl<X, $($param),+> SameShape<$split, $whole> for X where Split<$dim, Tp>: $rule<$dim, $whole, $split> {}
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

/// Broadcasting to a shape with more or fewer dims. Never implemented.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be combined with one shaped `{T}`: tensors are not broadcast",
    label = "one side has more dims than the other",
    note = "give both sides the same shape: create a constant with it, `Tensor::from_fn(x.rank(), &x.sizes(), ..)`, or \
            drop a dim of the larger side by a sum or mean",
    note = "a learned vector or matrix that repeats along the leading dims is a parameter over the trailing ones: \
            `gain: Param<(Hidden,)>` and `x * &self.gain`"
)]
pub trait Broadcast<T> {}

macro_rules! broadcasts {
    ($(($($left:ident),*) and ($($right:ident),*);)*) => {$(
        impl<Left, $($left,)* $($right),*> SameShape<($($right,)*), ($($left,)*)> for Left
        where
            ($($left,)*): Broadcast<($($right,)*)>,
        {
        }
    )*};
}

broadcasts! {
    () and (V);
    () and (V, W);
    () and (V, W, X);
    () and (V, W, X, Y);
    () and (V, W, X, Y, Z);
    (A) and ();
    (A) and (V, W);
    (A) and (V, W, X);
    (A) and (V, W, X, Y);
    (A) and (V, W, X, Y, Z);
    (A, B) and ();
    (A, B) and (V);
    (A, B) and (V, W, X);
    (A, B) and (V, W, X, Y);
    (A, B) and (V, W, X, Y, Z);
    (A, B, C) and ();
    (A, B, C) and (V);
    (A, B, C) and (V, W);
    (A, B, C) and (V, W, X, Y);
    (A, B, C) and (V, W, X, Y, Z);
    (A, B, C, D) and ();
    (A, B, C, D) and (V);
    (A, B, C, D) and (V, W);
    (A, B, C, D) and (V, W, X);
    (A, B, C, D) and (V, W, X, Y, Z);
    (A, B, C, D, E) and ();
    (A, B, C, D, E) and (V);
    (A, B, C, D, E) and (V, W);
    (A, B, C, D, E) and (V, W, X);
    (A, B, C, D, E) and (V, W, X, Y);
}

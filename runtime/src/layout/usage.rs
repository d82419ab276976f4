//! How often each mesh axis distributes a dim of a shape, as types: so that the compiler refuses an axis that would
//! distribute two dims of one tensor before anything is instantiated.

use std::marker::PhantomData;

/// How often an axis is used.
pub trait Usage: 'static {
    /// One use more.
    type Again: Usage;
    /// The uses of both.
    type Plus<U: Usage>: Usage;
}

/// Axis `A` distributes no dim.
#[derive(Debug)]
pub struct Unused<A>(PhantomData<A>);

/// Axis `A` distributes one dim.
#[derive(Debug)]
pub struct Once<A>(PhantomData<A>);

/// Axis `A` distributes two dims, or one dim twice.
#[derive(Debug)]
pub struct Twice<A>(PhantomData<A>);

impl<A: 'static> Usage for Unused<A> {
    type Again = Once<A>;
    type Plus<U: Usage> = U;
}

impl<A: 'static> Usage for Once<A> {
    type Again = Twice<A>;
    type Plus<U: Usage> = U::Again;
}

impl<A: 'static> Usage for Twice<A> {
    type Again = Twice<A>;
    type Plus<U: Usage> = Twice<A>;
}

/// The uses of all axes: a tuple of [`Usage`]s, for `pp`, `dp`, `fsdp`, `ep`, `cp` and `tp`.
pub trait UsageSet: 'static {
    /// Uses of `pp`.
    type Pp: Usage;
    /// Uses of `dp`.
    type Dp: Usage;
    /// Uses of `fsdp`.
    type Fsdp: Usage;
    /// Uses of `ep`.
    type Ep: Usage;
    /// Uses of `cp`.
    type Cp: Usage;
    /// Uses of `tp`.
    type Tp: Usage;
    /// The uses of both, axis by axis.
    type Plus<U: UsageSet>: UsageSet;
}

impl<P: Usage, D: Usage, F: Usage, E: Usage, C: Usage, T: Usage> UsageSet for (P, D, F, E, C, T) {
    type Pp = P;
    type Dp = D;
    type Fsdp = F;
    type Ep = E;
    type Cp = C;
    type Tp = T;
    type Plus<U: UsageSet> = (
        P::Plus<U::Pp>,
        D::Plus<U::Dp>,
        F::Plus<U::Fsdp>,
        E::Plus<U::Ep>,
        C::Plus<U::Cp>,
        T::Plus<U::Tp>,
    );
}

/// An axis that distributes one dim at most.
#[diagnostic::on_unimplemented(
    message = "`{Self}`: one mesh axis cannot distribute two dims of a tensor, or one dim twice",
    label = "its ranks would hold the diagonal blocks only",
    note = "split one of the dims only, or over another axis; `.gather(Dim)` makes a split dim whole first",
    note = "a dim declared `@ data` is distributed over `dp`, `fsdp` and `ep`"
)]
pub trait AtMostOnce {}

impl<A> AtMostOnce for Unused<A> {}
impl<A> AtMostOnce for Once<A> {}

/// Uses of which no axis has two.
#[diagnostic::on_unimplemented(
    message = "a mesh axis may distribute two of these dims, whose types are parameters here",
    label = "not known to be the shape of a tensor",
    note = "code that is generic in dims, and makes tensors of them, says `where (B, S): Shape`"
)]
pub trait Distinct {}

#[rustfmt::skip]
impl<P: AtMostOnce, D: AtMostOnce, F: AtMostOnce, E: AtMostOnce, C: AtMostOnce, T: AtMostOnce> Distinct
    for (P, D, F, E, C, T)
{
}

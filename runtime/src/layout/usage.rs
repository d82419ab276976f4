//! How often each mesh axis distributes a dim of a shape, as types: so that the compiler refuses an axis that would
//! distribute two dims of one tensor before anything is instantiated.

use std::marker::PhantomData;

/// How often an axis is used.
pub trait Usage: 'static {
    /// One use more.
    type Again: Usage;
    /// The uses of both.
    type Plus<U: Usage>: Usage;
    /// `Others`, the verdict over other axes, if this one distributes one dim at most.
    type And<Others>;
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
    type And<Others> = Others;
}

impl<A: 'static> Usage for Once<A> {
    type Again = Twice<A>;
    type Plus<U: Usage> = U::Again;
    type And<Others> = Others;
}

impl<A: 'static> Usage for Twice<A> {
    type Again = Twice<A>;
    type Plus<U: Usage> = Twice<A>;
    type And<Others> = Twice<A>;
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
    /// [`Distinct`] if each axis distributes one dim at most, else [`Twice`] over the first that distributes more.
    type Verdict;
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
    type Verdict = P::And<D::And<F::And<E::And<C::And<T::And<Distinct>>>>>>;
}

/// No axis distributes two dims.
#[derive(Debug)]
pub struct Distinct;

/// The verdict over a shape `S` that tensors can have: [`Distinct`].
#[diagnostic::on_unimplemented(
    message = "`{S}` cannot be the shape of a tensor: one mesh axis would distribute two of its dims, or one dim twice",
    label = "the ranks of the axis would hold the diagonal blocks only",
    note = "split one of the dims only, or over another axis; `.gather(Dim)` makes a split dim whole first",
    note = "a dim declared `@ data` is distributed over `dp`, `fsdp` and `ep`",
    note = "code that is generic in dims, and makes tensors of them, says `where (B, S): Shape`"
)]
pub trait OneDimPerAxis<S> {}

impl<S> OneDimPerAxis<S> for Distinct {}

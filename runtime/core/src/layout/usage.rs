//! Type-level counts of the dims that each mesh axis distributes.
//!
//! With them the compiler refuses an axis that distributes two dims of one tensor before generic code is instantiated.
//! A verdict is `Others`, which stands for the verdict of the other axes, unless this axis has a problem:
//!
//! | count of an axis | `And`: of one tensor | `CoveredBy`: of an operand | `Covers`: of the operand's output |
//! |---|---|---|---|
//! | [`Unused`]: no dim | `Others` | `Others` | [`Lost`] |
//! | [`Once`]: one dim | `Others` | `Covers` of the output | `Others` |
//! | [`Twice`]: two dims, or one twice | [`Twice`] | `Covers` of the output | `Others` |
//! | [`RowsOfRouting`]: rows of experts | [`RowsOfRouting`] | [`RowsOfRouting`] | `Others` |

use std::marker::PhantomData;

/// The number of dims that one axis distributes: none, one, or too many.
pub trait AxisCount: 'static {
    /// The count plus one.
    type Next: AxisCount;
    /// The sum of both counts.
    type Plus<U: AxisCount>: AxisCount;
    /// The verdict: `Others`, that of the other axes, if this axis distributes at most one dim.
    type And<Others>;
    /// The verdict of an operand with this count: `Others`, if the output is distributed over this axis too, or the
    /// operand is not.
    type CoveredBy<Output: AxisCount, Others>;
    /// The verdict of an output with this count: `Others`, if it is distributed over axis `A`, else [`Lost`].
    type Covers<A, Others>;
}

/// Axis `A` distributes an operand of a function, but not its output.
#[derive(Debug)]
pub struct Lost<A>(PhantomData<A>);

/// Axis `A` distributes no dim.
#[derive(Debug)]
pub struct Unused<A>(PhantomData<A>);

/// Axis `A` distributes one dim.
#[derive(Debug)]
pub struct Once<A>(PhantomData<A>);

/// Axis `A` distributes two dims, or one dim twice.
#[derive(Debug)]
pub struct Twice<A>(PhantomData<A>);

impl<A: 'static> AxisCount for Unused<A> {
    type Next = Once<A>;
    type Plus<U: AxisCount> = U;
    type And<Others> = Others;
    type CoveredBy<Output: AxisCount, Others> = Others;
    type Covers<Axis, Others> = Lost<Axis>;
}

impl<A: 'static> AxisCount for Once<A> {
    type Next = Twice<A>;
    type Plus<U: AxisCount> = U::Next;
    type And<Others> = Others;
    type CoveredBy<Output: AxisCount, Others> = Output::Covers<A, Others>;
    type Covers<Axis, Others> = Others;
}

impl<A: 'static> AxisCount for Twice<A> {
    type Next = Twice<A>;
    type Plus<U: AxisCount> = Twice<A>;
    type And<Others> = Twice<A>;
    type CoveredBy<Output: AxisCount, Others> = Output::Covers<A, Others>;
    type Covers<Axis, Others> = Others;
}

/// A dim whose rows follow from a routing, [`Routed`](super::Routed). It takes the place of the count of `pp`, over
/// which no dim of tokens is distributed.
#[derive(Debug)]
pub struct RowsOfRouting;

impl AxisCount for RowsOfRouting {
    type Next = RowsOfRouting;
    type Plus<U: AxisCount> = RowsOfRouting;
    type And<Others> = RowsOfRouting;
    type CoveredBy<Output: AxisCount, Others> = RowsOfRouting;
    type Covers<Axis, Others> = Others;
}

/// The counts of all axes: a tuple of [`AxisCount`]s, for `pp`, `dp`, `fsdp`, `ep`, `cp` and `tp`.
pub trait UsageSet: 'static {
    /// Count of `pp`.
    type Pp: AxisCount;
    /// Count of `dp`.
    type Dp: AxisCount;
    /// Count of `fsdp`.
    type Fsdp: AxisCount;
    /// Count of `ep`.
    type Ep: AxisCount;
    /// Count of `cp`.
    type Cp: AxisCount;
    /// Count of `tp`.
    type Tp: AxisCount;
    /// The sum of both counts, axis by axis.
    type Plus<U: UsageSet>: UsageSet;
    /// [`Distinct`] if each axis distributes at most one dim, else [`Twice`] of the first axis that distributes more.
    type Verdict;
    /// `Others`, if an output with the usage `O` is distributed over each axis that distributes an operand with this
    /// one, else [`Lost`] with the first axis.
    type CoveredBy<O: UsageSet, Others>;
}

impl<P: AxisCount, D: AxisCount, F: AxisCount, E: AxisCount, C: AxisCount, T: AxisCount> UsageSet
    for (P, D, F, E, C, T)
{
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
    type CoveredBy<O: UsageSet, Others> = P::CoveredBy<
        O::Pp,
        D::CoveredBy<
            O::Dp,
            F::CoveredBy<
                O::Fsdp,
                E::CoveredBy<O::Ep, C::CoveredBy<O::Cp, T::CoveredBy<O::Tp, Others>>>,
            >,
        >,
    >;
}

/// Each axis distributes at most one dim.
#[derive(Debug)]
pub struct Distinct;

/// The verdict of a shape `S` that tensors can have: [`Distinct`].
#[diagnostic::on_unimplemented(
    message = "`{S}` cannot be the shape of a tensor: one mesh axis would distribute two of its dims, or one dim twice",
    label = "the ranks of the axis would hold only the diagonal blocks",
    note = "split only one of the dims, or split over another axis; `.gather(Dim)` makes a `Split<Dim, A>` whole first",
    note = "a dim declared `@ data` is distributed over `dp`, `fsdp` and `ep`, and cannot be gathered",
    note = "code that is generic in dims and creates tensors needs the bound `where (B, S): Shape`"
)]
pub trait OneDimPerAxis<S> {}

impl<S> OneDimPerAxis<S> for Distinct {}

impl<S> OneDimPerAxis<S> for RowsOfRouting where RowsOfRouting: MadeByRouting<S> {}

/// Never implemented: a shape `S` with a [`Routed`](super::Routed) dim that a program can create tensors with.
#[diagnostic::on_unimplemented(
    message = "tensors shaped `{S}` are made by a routing, and computed by layers only",
    label = "ranks hold different numbers of the rows that were routed to their experts",
    note = "`routing.group(&x)` and `routing.dispatch(&x, Ep)` make them from a tensor with a row for each token",
    note = "new tensors have a row for each token: `routing.combine(&rows)` brings the results of experts back"
)]
pub trait MadeByRouting<S> {}

/// The verdict of the operands of a function with the output `O`: [`Distinct`], if the output is distributed over every
/// axis that distributes an operand, or partial over it.
pub trait AxesCovered<O> {}

impl<O> AxesCovered<O> for Distinct {}

impl<A: InOutput<O>, O> AxesCovered<O> for Lost<A> {}

impl<O> AxesCovered<O> for RowsOfRouting where RowsOfRouting: TakenByFunctions<O> {}

/// Never implemented: rows of a routing as an operand of a user-defined function with the output `O`.
#[diagnostic::on_unimplemented(
    message = "a user-defined function with the output `{O}` cannot take rows that were routed to experts",
    label = "ranks hold different numbers of these rows",
    note = "a function takes a row for each token: `routing.combine(&rows)` brings the results of experts back; \
            elementwise operations, norms and linear layers take the rows too"
)]
pub trait TakenByFunctions<O> {}

/// The verdict of the axes that experts are split over, for tokens shaped `L`: [`Distinct`], if each axis distributes
/// them.
#[diagnostic::on_unimplemented(
    message = "tokens shaped `{L}` cannot be dispatched over axes that are not known",
    label = "these axes may have ranks with the same tokens",
    note = "code that is generic in the axes `A` needs the bound `A: DispatchAxes<L>` for tokens shaped `L`"
)]
pub trait TokensDiffer<L> {}

impl<L> TokensDiffer<L> for Distinct {}

impl<A: InTokens<L>, L> TokensDiffer<L> for Lost<A> {}

/// Never implemented: an axis whose ranks have the same tokens.
#[diagnostic::on_unimplemented(
    message = "tokens shaped `{L}` cannot be dispatched over `{Self}`: its ranks have the same tokens",
    label = "an expert would get each token once for each rank of this axis",
    note = "experts are split over axes that distribute the tokens: `Ep` for `Batch @ data`, `Cp` for `Seq @ cp`, `Tp` \
            for a stream split by `Split<Seq, Tp>`; leave the axis out of `dispatch`, and out of `fold` of the experts"
)]
pub trait InTokens<L> {}

/// Never implemented: an axis that is not in output `O`, although operands are distributed over it.
#[diagnostic::on_unimplemented(
    message = "an operand of this function is distributed over `{Self}`, but its output `{O}` is not",
    label = "each rank of `{Self}` would compute another output, but the type states that it is the same",
    note = "an output that keeps the distributed dim has it in its shape; an output that sums over it is `Partial<.., \
            {Self}>`",
    note = "a function that needs the whole dim takes it whole: `.gather(Dim)` of a `Split<Dim, A>` before it; a dim \
            declared `@` cannot be gathered"
)]
pub trait InOutput<O> {}

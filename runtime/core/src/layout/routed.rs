//! The dim of tokens that are routed to experts.

use std::any::TypeId;
use std::marker::PhantomData;

use super::sealed::Seal;
use super::usage::{Distinct, RowsOfRouting, TokensDiffer, UsageSet};
use super::{AxisSet, Dim, DimInfo, Dims, Here, Split, SplitAxes, Whole};

/// The choices of tokens shaped `L` for the experts `E`, each on the rank that has the chosen expert: expert by expert,
/// and within an expert in the order of tokens.
///
/// Tensors with this dim, `(Routed<L, E>, Hidden)`, come from [`group`](crate::nn::TokenRouting::group) and
/// [`dispatch`](crate::nn::TokenRouting::dispatch) only. Ranks hold different numbers of rows, so the dim can be
/// neither summed over, nor gathered, nor split. Operations that treat all rows alike take it: elementwise ones, norms,
/// plain linear layers, and the linear layers of experts, [`GroupedLinear`](crate::nn::GroupedLinear);
/// `select`, `range` and `cut` take parts of their other dims.
pub struct Routed<L, E>(PhantomData<(L, E)>);

#[diagnostic::do_not_recommend]
impl<L: Dims, E: Dim> Dim for Routed<L, E> {
    const NAME: &'static str = "Routed";
    const VARIES: AxisSet = L::VARIES.union(E::VARIES);
    const INFO: DimInfo = DimInfo {
        name: "Routed",
        key: TypeId::of::<Self>,
        split: AxisSet::NONE,
        home: Self::VARIES,
        is_routed: true,
    };
    // The axes of `E` are among the axes of `L`: tokens are dispatched over no others.
    type Usage = (
        RowsOfRouting,
        <L::Usage as UsageSet>::Dp,
        <L::Usage as UsageSet>::Fsdp,
        <L::Usage as UsageSet>::Ep,
        <L::Usage as UsageSet>::Cp,
        <L::Usage as UsageSet>::Tp,
    );
    const SEAL: Seal = Seal::new();
}

/// Axes that tokens shaped `L` can be dispatched over: each of them distributes the tokens.
pub trait DispatchAxes<L>: SplitAxes {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<L: Dims, A: SplitAxes> DispatchAxes<L> for A
where
    <A::Usage as UsageSet>::CoveredBy<L::Usage, Distinct>: TokensDiffer<L>,
{
    const SEAL: Seal = Seal::new();
}

/// The dim `E` of all experts, or a split of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are not the experts `{E}` that the tokens were routed to",
    label = "rows of other experts",
    note = "combine rows that the same routing has dispatched, after the experts have computed them"
)]
pub trait ExpertsOf<E>: Dim {
    #[doc(hidden)]
    const IS_SPLIT: bool;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<E: Whole<Home = Here>> ExpertsOf<E> for E {
    const IS_SPLIT: bool = false;
    const SEAL: Seal = Seal::new();
}

impl<E: Whole<Home = Here>, A: SplitAxes> ExpertsOf<E> for Split<E, A> {
    const IS_SPLIT: bool = true;
    const SEAL: Seal = Seal::new();
}

/// A shape of tokens with lead dims `L` and one further dim, which is whole.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be dispatched by a routing of tokens shaped `{L}`",
    label = "not one row, of one whole dim, for each token that was routed",
    note = "dispatch the tensor that the router has read, or one computed from it with the same dims before the last \
            one",
    note = "a last dim `Split<Dim, A>` is gathered first: `.gather(Dim)`; it is not declared `@`"
)]
pub trait TokenRows<L>: Dims {
    /// The last dim.
    type Feature: Whole<Home = Here>;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Rows that a routing of tokens with dims `L` to the experts `E` has brought to the ranks of their experts.
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` does not hold rows of the experts `{E}`, to which tokens shaped `{L}` were \
               routed",
    label = "not rows that `routing.dispatch(&x, Ep)` or `routing.group(&x)` has made",
    note = "tokens reach their experts by `routing.dispatch(&x, Ep)`, or by `routing.group(&x)` if every rank has all \
            experts; their layers compute the rows, and `routing.combine(&rows)` brings them back to the same tokens",
    note = "the last dim of the rows is whole and declared without `@`"
)]
pub trait RowsOf<L, E>: Dims {
    /// The last dim.
    type Feature: Whole<Home = Here>;
    /// The axes over which the experts are split.
    const EXPERT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<L: Dims, E, P: ExpertsOf<E>, F: Whole<Home = Here>> RowsOf<L, E> for (Routed<L, P>, F) {
    type Feature = F;
    const EXPERT_AXES: AxisSet = P::VARIES;
    const SEAL: Seal = Seal::new();
}

macro_rules! token_rows {
    ($(($($lead:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($lead: Dim,)+ F: Whole<Home = Here>> TokenRows<($($lead,)+)> for ($($lead,)+ F) {
            type Feature = F;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

token_rows! { (A) (A, B) (A, B, C) (A, B, C, D) }

/// Compiles unless a dim of `S` is [`Routed`].
pub(crate) const fn refuse_routed<S: Dims>() {
    let mut dim = 0;
    while dim < S::DIMS.len() {
        refuse_routed_dim::<S>(dim);
        dim += 1;
    }
}

/// Compiles unless the dim at position `dim` of `S` is [`Routed`].
pub(crate) const fn refuse_routed_dim<S: Dims>(dim: usize) {
    assert!(
        !S::DIMS[dim].is_routed,
        "ranks hold different numbers of the rows that were routed to their experts, so this operation does not apply \
         to them: bring the results back to the tokens first, `routing.combine(&rows)`"
    );
}

//! The messages for losses and weighted sums of losses that are negated by hand.
//!
//! The compiler does not show the message of a bound of `Neg` itself, so the result has a type of its own, and every
//! use of it shows the message.

use std::marker::PhantomData;
use std::ops::Neg;
use std::rc::Rc;

use crate::fsdp::Unit;

use super::{
    Accumulating, AccumulatingObjective, Gradients, Loss, Mean, Objective, Pending, WeightedSum,
};

/// `-loss`, which has no use.
#[must_use = "a loss has no sign of its own: negate its terms, `Loss::mean_of(&-terms)`"]
pub struct NegatedLoss<S>(PhantomData<Loss<S>>);

/// `-objective`, which has no use.
#[must_use = "a weighted sum of losses has no sign of its own: negate the weights, `loss.weighted(-0.1)`"]
pub struct NegatedObjective<Of>(PhantomData<Objective<Of>>);

impl<S> Neg for Loss<S> {
    type Output = NegatedLoss<S>;

    fn neg(self) -> NegatedLoss<S> {
        NegatedLoss(PhantomData)
    }
}

impl<Of> Neg for Objective<Of> {
    type Output = NegatedObjective<Of>;

    fn neg(self) -> NegatedObjective<Of> {
        NegatedObjective(PhantomData)
    }
}

/// Never implemented: a loss, or a weighted sum of losses, with a sign of its own.
#[diagnostic::on_unimplemented(
    message = "a loss cannot be negated by hand, nor a weighted sum of losses",
    label = "the sign belongs to the terms of a loss, or to its weight",
    note = "`Loss::mean_of(&-terms)` is the mean of the negated terms, which descends where their mean ascends",
    note = "the difference of two means is `a.weighted(1.0) + b.weighted(-1.0)`"
)]
pub trait HasSign {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! never_used {
    ($($negated:ident<$param:ident> { $($name:ident($($argument:ty)?) -> $out:ty;)* })*) => {$(
        impl<$param> $negated<$param> {$(
            /// Never compiles: the sign is that of the terms or of the weight.
            #[doc(hidden)]
            pub fn $name(self $(, _: $argument)?) -> $out
            where
                Self: HasSign,
            {
                Self::never_implemented()
            }
        )*}
    )*};
}

never_used! {
    NegatedLoss<S> {
        reduce() -> Mean;
        backward() -> Gradients<Pending>;
        backward_for(&[Rc<Unit>]) -> Gradients<Pending>;
        accumulate() -> Gradients<Accumulating>;
        accumulate_for(&[Rc<Unit>]) -> Gradients<Accumulating>;
    }
    NegatedObjective<Of> {
        reduce() -> WeightedSum;
        backward() -> Gradients<Pending>;
        backward_for(&[Rc<Unit>]) -> Gradients<Pending>;
        accumulate() -> Gradients<AccumulatingObjective>;
        accumulate_for(&[Rc<Unit>]) -> Gradients<AccumulatingObjective>;
    }
}

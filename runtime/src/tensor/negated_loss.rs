//! The message for a loss that is negated by hand.
//!
//! The compiler does not show the message of a bound of `Neg` itself, so the result has a type of its own, of which every use
//! has the message.

use std::marker::PhantomData;
use std::ops::Neg;
use std::rc::Rc;

use crate::fsdp::Unit;

use super::{Accumulating, Gradients, Loss, Mean, Pending};

/// `-loss`, which has no use.
#[must_use = "a loss has no sign of its own: negate its terms, `Loss::mean_of(&-terms)`"]
pub struct NegatedLoss<S>(PhantomData<Loss<S>>);

impl<S> Neg for Loss<S> {
    type Output = NegatedLoss<S>;

    fn neg(self) -> NegatedLoss<S> {
        NegatedLoss(PhantomData)
    }
}

/// Never implemented: a loss with a sign of its own.
#[diagnostic::on_unimplemented(
    message = "a loss cannot be negated by hand",
    label = "the sign belongs to the terms",
    note = "`Loss::mean_of(&-terms)` is the mean of the negated terms, which descends where their mean ascends",
    note = "the difference of two means is `a.weighted(1.0) + b.weighted(-1.0)`"
)]
pub trait HasSign {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! never_used {
    ($($name:ident($($argument:ty)?) -> $out:ty;)*) => {
        impl<S> NegatedLoss<S> {$(
            /// Never compiles: the sign of a loss is that of its terms.
            #[doc(hidden)]
            pub fn $name(self $(, _: $argument)?) -> $out
            where
                Self: HasSign,
            {
                Self::never_implemented()
            }
        )*}
    };
}

never_used! {
    reduce() -> Mean;
    backward() -> Gradients<Pending>;
    backward_for(&[Rc<Unit>]) -> Gradients<Pending>;
    accumulate() -> Gradients<Accumulating>;
    accumulate_for(&[Rc<Unit>]) -> Gradients<Accumulating>;
}

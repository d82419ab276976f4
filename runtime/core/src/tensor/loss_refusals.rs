//! The messages for losses, weighted sums of losses, and gradients that are scaled, negated or combined by hand.

use std::marker::PhantomData;
use std::ops::{Add, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};
use std::rc::Rc;

use crate::fsdp::Unit;

use super::never_applies::never_applies;
use super::{
    Accumulating, Gradients, Loss, Mean, Objective, OnlyUnits, Pending, Pooled, WeightedSum,
};

/// Never implemented: a factor of a loss.
#[diagnostic::on_unimplemented(
    message = "a loss cannot be scaled by hand",
    label = "this is a sum and a count, divided once, after both are summed over the ranks",
    note = "the weighted sum of several losses, each a mean over its own elements, is `a.weighted(1.0) + \
            b.weighted(0.1)`",
    note = "a factor of the only loss belongs to the learning rate, and a sign to the terms: `Loss::mean_of(&-terms)`",
    note = "add up the losses of micro-batches: `a + b` is the mean over both"
)]
pub trait ScalesLoss {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Never implemented: a factor of a weighted sum, or a subtrahend.
#[diagnostic::on_unimplemented(
    message = "a weighted sum of losses cannot be scaled, and nothing is subtracted from it",
    label = "each loss has its weight before it is added",
    note = "a weight may be negative: `a.weighted(2.0) + b.weighted(-0.1)`, or \
            `a.weighted_over(2.0, &tokens) + b.weighted_over(-0.1, &samples)`",
    note = "a factor of all losses belongs to the learning rate"
)]
pub trait ScalesObjective {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! never_scaled {
    ($(<$param:ident> $loss:ty, $rule:ident;)*) => {$(
        never_applies! {
            <$param> $loss, $rule:
            Mul mul;
            Div div;
            Sub sub;
        }

        /// Never applies; the message of its bound explains why.
        impl<$param> Mul<$loss> for f32
        where
            $loss: $rule,
        {
            type Output = $loss;

            fn mul(self, _: $loss) -> $loss {
                <$loss>::never_implemented()
            }
        }
    )*};
}

never_scaled! {
    <S> Loss<S>, ScalesLoss;
    <Of> Objective<Of>, ScalesObjective;
}

never_applies! {
    in place ScalesInPlace <Of> Objective<Of>, ScalesObjective:
    MulAssign mul_assign;
    DivAssign div_assign;
    SubAssign sub_assign;
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

/// `-loss` or `-objective`, which has no use. The compiler does not show the message of a bound of `Neg` itself, so the
/// result has a type of its own, and every use of it shows the message.
#[must_use = "a loss has no sign of its own: negate its terms, `Loss::mean_of(&-terms)`, or its weight, \
              `loss.weighted(-0.1)`"]
pub struct Negated<L>(PhantomData<L>);

macro_rules! never_negated {
    ($(<$param:ident> $loss:ty { $($name:ident($($argument:ty)?) -> $out:ty;)* })*) => {$(
        impl<$param> Neg for $loss {
            type Output = Negated<$loss>;

            fn neg(self) -> Negated<$loss> {
                Negated(PhantomData)
            }
        }

        impl<$param> Negated<$loss> {$(
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

never_negated! {
    <S> Loss<S> {
        reduce() -> Mean;
        backward() -> Gradients<Pending>;
        accumulate() -> Gradients<Accumulating>;
        only(&[Rc<Unit>]) -> OnlyUnits<'_, Pooled>;
    }
    <Of> Objective<Of> {
        reduce() -> WeightedSum;
        backward() -> Gradients<Pending>;
        accumulate() -> Gradients<Accumulating<Of>>;
        only(&[Rc<Unit>]) -> OnlyUnits<'_, Of>;
    }
}

/// Never implemented: an operand of gradients.
#[diagnostic::on_unimplemented(
    message = "gradients are not added, averaged or scaled by hand",
    label = "they are divided once, by the count of all ranks",
    note = "losses are differentiated together, `(a + b).backward()` or `a.and(b).backward()`, or one after the other: \
            `a.accumulate().backward(b)`",
    note = "a weighted sum is one of losses, `(a.weighted(1.0) + b.weighted(0.1)).backward()`; `.clip(max_norm)` \
            limits the norm of reduced gradients"
)]
pub trait CombinesGradients {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

never_applies! {
    <State> Gradients<State>, CombinesGradients:
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

/// Never implemented: an operand of losses that are limited to some units.
#[diagnostic::on_unimplemented(
    message = "losses that are limited to units are not added or scaled",
    label = "these are the losses and the units of one backward",
    note = "add the losses first, and limit their gradients then: `(a + b).only(&units)`, or \
            `(a.weighted(1.0) + b.weighted(0.1)).only(&units)`",
    note = "losses of different units have a backward and an update each: `a.only(&first).backward()`"
)]
pub trait CombinesOnlyUnits {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

never_applies! {
    <'a, Of> OnlyUnits<'a, Of>, CombinesOnlyUnits:
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

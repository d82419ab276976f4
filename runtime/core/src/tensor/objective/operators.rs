//! Operators of weighted sums of losses: `+` and `+=`. The others never compile, and their messages explain why.

use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Sub, SubAssign};

use crate::layout::Seal;

use super::super::never_applies::never_applies;
use super::Objective;

/// A term of an [`Objective`]: another one with counts of the same kind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a weighted sum of losses",
    label = "not a weighted loss whose count is of the same kind",
    note = "each loss takes its weight first: `a.weighted(1.0) + b.weighted(0.1)`",
    note = "with several micro-batches, each loss takes the count of the step, too: \
            `a.weighted_over(1.0, &tokens) + b.weighted_over(0.1, &samples)`"
)]
pub trait AddsToObjective<Of> {
    #[doc(hidden)]
    const SEAL: Seal;
    #[doc(hidden)]
    fn into_objective(self) -> Objective<Of>;
}

#[diagnostic::do_not_recommend]
impl<Of> AddsToObjective<Of> for Objective<Of> {
    const SEAL: Seal = Seal::new();

    fn into_objective(self) -> Objective<Of> {
        self
    }
}

impl<Of, R: AddsToObjective<Of>> Add<R> for Objective<Of> {
    type Output = Objective<Of>;

    #[track_caller]
    fn add(mut self, other: R) -> Objective<Of> {
        self += other;
        self
    }
}

impl<Of, R: AddsToObjective<Of>> AddAssign<R> for Objective<Of> {
    #[track_caller]
    fn add_assign(&mut self, other: R) {
        let other = other.into_objective();
        self.terms.append(other.terms);
        self.counts.extend(other.counts);
    }
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

/// An operand of `*=`, `/=` and `-=`. The bound is one of its tuple, because the compiler shows no message of a bound
/// of the left side's own type.
pub trait ScalesInPlace {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

impl<R> ScalesInPlace for R
where
    (R,): ScalesObjective,
{
    fn never_implemented() -> ! {
        <(R,) as ScalesObjective>::never_implemented()
    }
}

never_applies! {
    <Of> Objective<Of>, ScalesObjective:
    Mul mul;
    Div div;
    Sub sub;
}

never_applies! {
    in place <Of> Objective<Of>, ScalesInPlace:
    MulAssign mul_assign;
    DivAssign div_assign;
    SubAssign sub_assign;
}

/// Never applies; the message of its bound explains why.
impl<Of> Mul<Objective<Of>> for f32
where
    Objective<Of>: ScalesObjective,
{
    type Output = Objective<Of>;

    fn mul(self, _: Objective<Of>) -> Objective<Of> {
        Objective::<Of>::never_implemented()
    }
}

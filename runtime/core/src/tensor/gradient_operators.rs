//! The message for gradients that are added or scaled by hand.

use std::ops::{Add, Div, Mul, Sub};

use super::Gradients;
use super::never_applies::never_applies;

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

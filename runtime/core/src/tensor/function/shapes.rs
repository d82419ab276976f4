//! Tuples of shapes: the shapes of a function's inputs, or of its parameters.

use crate::autograd::{Arity, Count};
use crate::layout::{AxisSet, DimInfo, Dims, Seal, UsageSet};

/// Shapes of the inputs or the parameters of a function: a tuple of up to four shapes, `((Batch, Hidden), (Batch,))`;
/// of one operand: `((Batch, Hidden),)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of shapes",
    note = "the operands of a function are up to four shapes: `((Batch, Hidden), (Batch,))`; of one operand: `((Batch, \
            Hidden),)`"
)]
pub trait Shapes: 'static {
    /// The number of operands.
    #[doc(hidden)]
    type Count: Arity;
    /// The verdict on operands with these shapes of an output with usage `O`.
    #[doc(hidden)]
    type CoveredBy<O: UsageSet, Others>;
    /// The dims of each operand.
    const DIMS: &'static [&'static [DimInfo]];
    /// The axes over which each operand varies.
    const VARIES: &'static [AxisSet];
    #[doc(hidden)]
    const SEAL: Seal;
}

/// One `T` per operand: `[T; 2]` for two shapes.
pub type PerOperand<S, T> = <<S as Shapes>::Count as Arity>::Array<T>;

impl Shapes for () {
    type Count = Count<0>;
    type CoveredBy<O: UsageSet, Others> = Others;
    const DIMS: &'static [&'static [DimInfo]] = &[];
    const VARIES: &'static [AxisSet] = &[];
    const SEAL: Seal = Seal::new();
}

macro_rules! covered {
    ($o:ident $others:ident;) => { $others };
    ($o:ident $others:ident; $shape:ident $($rest:ident)*) => {
        <<$shape as Dims>::Usage as UsageSet>::CoveredBy<$o, covered!($o $others; $($rest)*)>
    };
}

macro_rules! shapes {
    ($(($($shape:ident),+), $count:literal;)*) => {$(
        impl<$($shape: Dims),+> Shapes for ($($shape,)+) {
            type Count = Count<$count>;
            type CoveredBy<O: UsageSet, Others> = covered!(O Others; $($shape)+);
            const DIMS: &'static [&'static [DimInfo]] = &[$($shape::DIMS),+];
            const VARIES: &'static [AxisSet] = &[$($shape::VARIES),+];
            const SEAL: Seal = Seal::new();
        }
    )*};
}

shapes! {
    (A), 1;
    (A, B), 2;
    (A, B, C), 3;
    (A, B, C, D), 4;
}

//! The operators `+=`, `-=`, `*=` and `/=`, which replace the left side by the result.

use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

use crate::layout::{AxisGroup, Dims};

use super::combine::{Accumulate, Combine, Product, Quotient, Scale, Sign};
use super::{Partial, Right, Tensor};

macro_rules! tensor_assignments {
    ($($operator:ident $method:ident $rule:ident ($apply:ident $(, $op:expr)?);)*) => {$(
        impl<S: Dims, R: Right> $operator<R> for Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
        {
            #[track_caller]
            fn $method(&mut self, right: R) {
                *self = $rule::$apply(&*self, right.combined() $(, $op)?);
            }
        }
    )*};
}

tensor_assignments! {
    AddAssign add_assign Combine (add_signed, Sign::Plus);
    SubAssign sub_assign Combine (add_signed, Sign::Minus);
    MulAssign mul_assign Product (multiply_by);
    DivAssign div_assign Quotient (divide_by);
}

macro_rules! partial_assignments {
    ($($operator:ident $method:ident $rule:ident ($apply:ident $(, $op:expr)?);)*) => {$(
        impl<S: Dims, A: AxisGroup, R> $operator<R> for Partial<S, A>
        where
            Partial<S, A>: $rule<R>,
        {
            #[track_caller]
            fn $method(&mut self, right: R) {
                *self = $rule::$apply(&*self, &right $(, $op)?);
            }
        }
    )*};
}

partial_assignments! {
    AddAssign add_assign Accumulate (accumulate, Sign::Plus);
    SubAssign sub_assign Accumulate (accumulate, Sign::Minus);
    MulAssign mul_assign Scale (multiply_by_scalar);
    DivAssign div_assign Scale (divide_by_scalar);
}

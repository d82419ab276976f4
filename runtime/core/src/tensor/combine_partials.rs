//! Sums and differences of partial sums, and their products with numbers.

use std::ops::Mul;

use crate::autograd::{Unary, Value};
use crate::layout::{AxisGroup, Dims};
use meshwright_mesh::__internal::check_sizes;

use super::Partial;
use super::combine::{Accumulate, Scale, Sign, pointwise_of, quotient_by};
use super::typed::note_number;

macro_rules! between_partials {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S: Dims, A: AxisGroup> Accumulate<Partial<S, A>> for $right {
            #[track_caller]
            fn accumulate(&self, left: &Partial<S, A>, op: Sign) -> Partial<S, A> {
                left.value().rank().check_same(self.value().rank());
                let sizes = |partial: &Partial<S, A>| partial.value().extents().to_vec();
                let (own, other) = (sizes(left), sizes(self));
                check_sizes(S::DIMS, ("the left partial sum", &own), ("the right one", &other));
                let sum = pointwise_of(left.value(), self.value(), op.into());
                Partial::from_untyped(sum, left.site().clone())
            }
        }
    )*};
}

between_partials! { Partial<S, A>, &Partial<S, A> }

macro_rules! partial_by_number {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S: Dims, A: AxisGroup> Scale<Partial<S, A>> for $right {
            #[track_caller]
            fn multiply_by_scalar(&self, left: &Partial<S, A>) -> Partial<S, A> {
                let factor = self.mul(1.0);
                note_number::<S>(left.value().rank(), "multiplied by", factor);
                scale_partial(left, Unary::Scale(factor))
            }

            #[track_caller]
            fn divide_by_scalar(&self, left: &Partial<S, A>) -> Partial<S, A> {
                let divisor = self.mul(1.0);
                note_number::<S>(left.value().rank(), "divided by", divisor);
                scale_partial(left, quotient_by(divisor))
            }
        }
    )*};
}

partial_by_number! { f32, &f32 }

fn scale_partial<S: Dims, A: AxisGroup>(partial: &Partial<S, A>, op: Unary) -> Partial<S, A> {
    let value = partial.value();
    let scaled = value.to_pointwise().unary(op);
    let value = Value::deferred(value.rank(), value.extents().to_vec(), scaled);
    Partial::from_untyped(value, partial.site().clone())
}

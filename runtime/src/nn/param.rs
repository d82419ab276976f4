//! Parameters of the author's own, as fields.

use std::marker::PhantomData;

use crate::layout::{Axis, Dim, Shape, Split, Whole, WholeFeature};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, Trailing, add_param, gradient_axes};

use super::{Build, Builder, Col, Plain, Row, Shard};

impl<S: Shape> Build for Param<S> {
    /// A matrix begins normally distributed, a vector as ones.
    fn build(builder: &mut Builder<'_>) -> Self {
        let init =
            if S::DIMS.len() > 1 { Init::Normal(builder.sizes().init_std) } else { Init::Ones };
        builder.own_param(init)
    }
}

/// What a column-parallel layer writes is split, and so is its bias.
#[diagnostic::do_not_recommend]
impl<D: Whole, A: Axis> Shard<Col<A>> for Param<(D,)> {
    type Sharded = Param<(Split<D, A>,)>;
}

#[diagnostic::do_not_recommend]
impl<I: WholeFeature, O: WholeFeature, A: Axis> Shard<Col<A>> for Param<(I, O)> {
    type Sharded = Param<(I, O::Split<A>)>;
}

#[diagnostic::do_not_recommend]
impl<I: WholeFeature, O: WholeFeature, A: Axis> Shard<Row<A>> for Param<(I, O)> {
    type Sharded = Param<(I::Split<A>, O)>;
}

/// A bias over the last dim `D`: adds a vector that begins as zeros.
///
/// The bias of a column-parallel layer is split with it: `#[sharded(tp = "col")] bias: Bias<Ffn>`. That of a
/// row-parallel layer is added after the reduction, whole.
pub struct Bias<D, Style = Plain> {
    vector: ParamRef,
    kind: PhantomData<(D, Style)>,
}

impl<D: Whole> Bias<D, Plain> {
    /// `x + bias`.
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        T::Shape: Trailing<(D,)>,
    {
        add_param(
            x.operand(),
            &self.vector,
            gradient_axes(T::Shape::VARIES, T::Shape::VARIES, D::VARIES),
        )
    }
}

impl<D: Whole, A: Axis> Bias<D, Col<A>> {
    /// `x + bias`, for this rank's part of both.
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        T::Shape: Trailing<(Split<D, A>,)>,
    {
        let axes = gradient_axes(T::Shape::VARIES, T::Shape::VARIES, Split::<D, A>::VARIES);
        add_param(x.operand(), &self.vector, axes)
    }
}

impl<D: Whole> Build for Bias<D, Plain> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let vector = builder.param::<(D,)>("bias", Init::Zeros).handle().clone();
        Bias { vector, kind: PhantomData }
    }
}

impl<D: Whole, A: Axis> Build for Bias<D, Col<A>> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let vector = builder.param::<(Split<D, A>,)>("bias", Init::Zeros).handle().clone();
        Bias { vector, kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<D, A> Shard<Col<A>> for Bias<D> {
    type Sharded = Bias<D, Col<A>>;
}

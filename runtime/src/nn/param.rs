//! Parameters of the author's own, as fields.

use std::marker::PhantomData;

use crate::layout::{
    Axis, Dims, Feature, LocalFeature, ModelAxis, ParamShape, Split, Whole, WholeFeature,
};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, Trailing, add_param, gradient_axes};

use super::{Build, Builder, Col, Layer, Plain, Row, Shard};

impl<S: ParamShape> Build for Param<S> {
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

/// A bias over the last dim (or pair of dims) `F`: adds a vector that begins as zeros.
///
/// The bias of a column-parallel layer is split with it: `#[sharded(tp = "col")] bias: Bias<Ffn>`, or
/// `Bias<(Heads, HeadDim)>`. That of a row-parallel layer is added after the reduction, whole.
pub struct Bias<F, Style = Plain> {
    vector: ParamRef,
    kind: PhantomData<(F, Style)>,
}

impl<F> Bias<F, Plain> {
    /// `x + bias`.
    #[track_caller]
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        F: WholeFeature,
        T::Shape: Trailing<F::Alone>,
    {
        add::<F, T>(x, &self.vector)
    }
}

impl<F, A: Axis> Bias<F, Col<A>> {
    /// `x + bias`, for this rank's part of both.
    #[track_caller]
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        F: WholeFeature,
        T::Shape: Trailing<<F::Split<A> as Feature>::Alone>,
    {
        add::<F::Split<A>, T>(x, &self.vector)
    }
}

impl<F: LocalFeature> Build for Bias<F, Plain> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Bias::new::<F::Alone>(builder)
    }
}

impl<F: LocalFeature, A: ModelAxis> Build for Bias<F, Col<A>> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Bias::new::<<F::Split<A> as Feature>::Alone>(builder)
    }
}

impl<F, Style> Bias<F, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let vector: Param<S> = builder.param("bias", Init::Zeros);
        Bias { vector: vector.handle().clone(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<F, A> Shard<Col<A>> for Bias<F> {
    type Sharded = Bias<F, Col<A>>;
}

impl<F: WholeFeature, X: Trailing<F::Alone>> Layer<Tensor<X>> for Bias<F, Plain> {
    type Out = Tensor<X>;

    #[track_caller]
    fn forward(&self, x: &Tensor<X>) -> Tensor<X> {
        Bias::<F, Plain>::forward(self, x)
    }
}

impl<F: WholeFeature, A: Axis, X: Trailing<<F::Split<A> as Feature>::Alone>> Layer<Tensor<X>>
    for Bias<F, Col<A>>
{
    type Out = Tensor<X>;

    #[track_caller]
    fn forward(&self, x: &Tensor<X>) -> Tensor<X> {
        Bias::<F, Col<A>>::forward(self, x)
    }
}

/// `x + bias`, for a bias split as `F` is.
#[track_caller]
fn add<F: Feature, T: Operand>(x: &T, bias: &ParamRef) -> Tensor<T::Shape> {
    let axes = gradient_axes(T::Shape::VARIES, T::Shape::VARIES, F::VARIES);
    add_param(x.operand(), bias, axes)
}

//! Bias over the last dim, whole or column-parallel.

use std::marker::PhantomData;

use crate::layout::{Axis, Dims, Feature, LocalFeature, ModelAxis, WholeFeature};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, Trailing, add_param, gradient_axes};

use super::chain::stage_layers;
use super::debug::debug_layers;
use super::{Build, Builder, Col, Layer, Plain, Shard};

/// Adds a bias over the last dim (or pair of dims) `F`.
///
/// Shape: `[.., F] -> [.., F]`; `bias[F]`.
///
/// The bias of a column-parallel layer is split like its output: `#[sharded(tp = "col")] bias: Bias<Ffn>`, or
/// `Bias<(Heads, HeadDim)>`. The bias of a row-parallel layer is whole, and is added after the reduction.
pub struct Bias<F, Style = Plain> {
    vector: ParamRef,
    kind: PhantomData<(F, Style)>,
}

/// Computes `x + bias`, on this rank's shard of both if they are split.
impl<F: WholeFeature, Style: SplitsFeature<F>, S, T: Operand<Shape = S>> Layer<T> for Bias<F, Style>
where
    S: Trailing<<Style::Own as Feature>::Alone>,
{
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let axes = gradient_axes(S::VARIES, S::VARIES, Style::Own::VARIES);
        add_param(x.operand(), &self.vector, axes)
    }
}

/// A style, which states the part of a feature that each rank has.
pub trait SplitsFeature<F> {
    /// The feature, whole or split.
    type Own: Feature;
}

impl<F: WholeFeature> SplitsFeature<F> for Plain {
    type Own = F;
}

impl<F: WholeFeature, A: Axis> SplitsFeature<F> for Col<A> {
    type Own = F::Split<A>;
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

stage_layers! {
    Bias<F, Style>;
}

debug_layers! {
    Bias<F, Style>: vector;
}

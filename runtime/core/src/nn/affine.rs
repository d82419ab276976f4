//! Linear layer with an optional bias in one field.

use crate::layout::{Axis, Dims, Feature, WholeFeature};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, add_param, gradient_axes};

use super::chain::stage_layers;
use super::debug::write_layer;
use super::linear::{Linear, LinearInput};
use super::{Build, Builder, Col, Layer, Plain, Row, Shard};

/// A linear layer from the last dim (or pair of dims) `I` to `O`, whose bias only some models have.
///
/// Shape: `[.., I] -> [.., O]`, with the weight of a `Linear`; `bias[O]`.
///
/// [`Sizes::with_optional`](super::Sizes::with_optional) says whether there is a bias, by the name of the field and
/// `bias`: `with_optional("q.bias", true)`. The styles are those of [`Linear`]. The bias of a column-parallel layer is
/// split like its output; that of a row-parallel layer is whole, and is added after the reduction.
pub struct Affine<I, O, Style = Plain> {
    linear: Linear<I, O, Style>,
    bias: Option<ParamRef>,
}

/// A style of linear layers, which states the part of a bias over `O` that each rank has.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharding style of an `Affine` that writes `{O}`",
    label = "neither a style nor a part of a pair",
    note = "a pair of dims is a tuple: `Affine<Hidden, ({O}, {Self})>` writes one, `Affine<(Heads, {O}), {Self}>` \
            reads one"
)]
pub trait BiasStyle<O> {
    /// The feature that the bias is added to, whole or split.
    type Own: Feature;
}

impl<O: WholeFeature> BiasStyle<O> for Plain {
    type Own = O;
}

impl<O: WholeFeature, A: Axis> BiasStyle<O> for Col<A> {
    type Own = O::Split<A>;
}

impl<O: WholeFeature, A, E> BiasStyle<O> for Row<A, E> {
    type Own = O;
}

/// Computes `x · W + bias` in the layer's style.
impl<I, O, Style, T> Layer<T> for Affine<I, O, Style>
where
    I: WholeFeature,
    O: WholeFeature,
    Style: BiasStyle<O>,
    T: Operand<Shape: LinearInput<I, O, Style>>,
{
    type Out = Tensor<<T::Shape as LinearInput<I, O, Style>>::Out>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let y = self.linear.forward(x);
        let Some(bias) = &self.bias else { return y };
        let varies = <<T::Shape as LinearInput<I, O, Style>>::Out as Dims>::VARIES;
        add_param(&y, bias, gradient_axes(varies, varies, Style::Own::VARIES))
    }
}

impl<I, O, Style: BiasStyle<O>> Build for Affine<I, O, Style>
where
    Linear<I, O, Style>: Build,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let linear = Linear::build(builder);
        let bias = builder.field("bias").is_present().then(|| {
            let bias: Param<<Style::Own as Feature>::Alone> = builder.param("bias", Init::Zeros);
            bias.handle().clone()
        });
        Affine { linear, bias }
    }
}

#[diagnostic::do_not_recommend]
impl<I, O, A> Shard<Col<A>> for Affine<I, O> {
    type Sharded = Affine<I, O, Col<A>>;
}

#[diagnostic::do_not_recommend]
impl<I, O, A, E> Shard<Row<A, E>> for Affine<I, O> {
    type Sharded = Affine<I, O, Row<A, E>>;
}

impl<I, O, Style> std::fmt::Debug for Affine<I, O, Style> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let params: Vec<&ParamRef> = [self.linear.weight()].into_iter().chain(&self.bias).collect();
        write_layer(f, "Affine", &params)
    }
}

stage_layers! {
    Affine<I, O, Style>;
}

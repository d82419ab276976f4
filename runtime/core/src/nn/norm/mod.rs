//! RMSNorm and LayerNorm over the last dim.

mod operation;
mod split;

use std::marker::PhantomData;

use crate::layout::{AxisSet, Dims, Ends, OnEveryRank, Seal, Whole, WholeFeature};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, gradient_axes};

use super::chain::stage_layers;
use super::debug::{debug_layers, write_layer};
use super::{Build, Builder, Layer, NormOptions, Plain};
use operation::{centered_norm, layer_norm, rms_norm};
pub use split::SplitNormInput;

/// `x / sqrt(mean(x²) + eps) * (offset + weight)` over the last dim `H` (Zhang and Sennrich, 2019).
///
/// Shape: `[.., H] -> [.., H]`; `weight[H]`.
///
/// `H` may be a pair, such as `(Heads, HeadDim)`: a norm over all elements of both dims, as of the queries of OLMo 2.
/// With `#[sharded(tp = "col")]` it takes a pair that is split along its first dim, and the ranks exchange one number
/// for each row in forward, and one in backward.
///
/// `eps` and the offset, which is 0 in most models, are [`Sizes::norm_eps`](super::Sizes::norm_eps) and
/// [`Sizes::norm_offset`](super::Sizes::norm_offset), or [`NormOptions`] of the field. Weights begin at `1 - offset`.
///
/// Every rank normalizes the same activation, or its shard of a sequence-parallel stream; in the second case the
/// gradient of the weight is reduced over the axis.
pub struct RmsNorm<H, Style = Plain> {
    weight: ParamRef,
    options: NormOptions,
    kind: PhantomData<(H, Style)>,
}

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last dim `H` (Ba, Kiros and Hinton, 2016).
///
/// Shape: `[.., H] -> [.., H]`; `weight[H]`, `bias[H]`.
///
/// A norm has no bias if `Sizes::with_optional("norm.bias", false)` names it by its field.
pub struct LayerNorm<H> {
    weight: ParamRef,
    bias: Option<ParamRef>,
    eps: f32,
    dim: PhantomData<H>,
}

/// Input shapes of a norm over `H`: they end in a whole `H`.
#[diagnostic::on_unimplemented(
    message = "a norm over `{H}` cannot take an activation shaped `{Self}`",
    label = "does not end in a whole `{H}`",
    note = "a norm reads all of `{H}`: reduce or gather the activation first, or end the region with a row-parallel \
            layer (`#[sharded(tp = \"row\")]`)",
    note = "a norm over a pair that column-parallel layers split is sharded as they are: `#[sharded(tp = \"col\")]`"
)]
pub trait NormInput<H>: Dims {
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: WholeFeature> NormInput<H> for X {
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::VARIES, H::VARIES);
    const SEAL: Seal = Seal::new();
}

/// Normalizes `x`.
impl<H, S: NormInput<H>, T: Operand<Shape = S>> Layer<T> for RmsNorm<H> {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        Tensor::from_untyped(rms_norm(
            x.operand().value(),
            &self.weight,
            self.options,
            S::GRADIENT_AXES,
            None,
        ))
    }
}

/// Normalizes `x`.
impl<H, S: NormInput<H>, T: Operand<Shape = S>> Layer<T> for LayerNorm<H> {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let (x, axes) = (x.operand().value(), S::GRADIENT_AXES);
        Tensor::from_untyped(match &self.bias {
            Some(bias) => layer_norm(x, &self.weight, bias, self.eps, axes),
            None => centered_norm(x, &self.weight, self.eps, axes),
        })
    }
}

impl<H: Whole> Build for RmsNorm<H>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        RmsNorm::new::<(H,)>(builder)
    }
}

impl<D: Whole, E: Whole> Build for RmsNorm<(D, E)>
where
    D::Home: OnEveryRank<D>,
    E::Home: OnEveryRank<E>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        RmsNorm::new::<((D, E),)>(builder)
    }
}

impl<H, Style> RmsNorm<H, Style> {
    /// Declares the weight, shaped `S`.
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let options = builder.norm_options();
        let NormOptions { offset, .. } = options;
        if !offset.is_finite() {
            builder
                .problem(format_args!("the offset of its weight is {offset}, and must be finite"));
        }
        let init = if offset == 0.0 { Init::Ones } else { Init::Constant(1.0 - offset) };
        let weight: Param<S> = builder.param("weight", init);
        RmsNorm { weight: weight.handle().clone(), options, kind: PhantomData }
    }
}

impl<H: Whole> Build for LayerNorm<H>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let weight = builder.param::<(H,)>("weight", Init::Ones).handle().clone();
        let has_bias = builder.inner("bias").unwrap_or(true);
        let bias = has_bias.then(|| builder.param::<(H,)>("bias", Init::Zeros).handle().clone());
        let NormOptions { eps, offset } = builder.norm_options();
        if offset != 0.0 {
            builder.problem(format_args!(
                "the weight of a `LayerNorm` has no offset, which is {offset} here; give the field its options by \
                 `Sizes::with_norm`"
            ));
        }
        LayerNorm { weight, bias, eps, dim: PhantomData }
    }
}

stage_layers! {
    LayerNorm<H>;
    RmsNorm<H, Style>;
}

debug_layers! {
    RmsNorm<H, Style>: weight;
}

impl<H> std::fmt::Debug for LayerNorm<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let params: Vec<&ParamRef> = [&self.weight].into_iter().chain(&self.bias).collect();
        write_layer(f, "LayerNorm", &params)
    }
}

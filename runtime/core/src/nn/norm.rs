//! RMSNorm and LayerNorm over the last dim.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{AxisSet, Dim, Dims, Ends, OnEveryRank, Seal, Whole};
use crate::tensor::{
    Count, InBackward, Init, Operand, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, ParamRef, Tensor, Value, apply, gradient_axes,
};
use meshwright_backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright_backend::{Buffer, ResidualSum, View};

use super::chain::stage_layers;
use super::debug::debug_layers;
use super::{Build, Builder, Layer};

/// `x / sqrt(mean(x²) + eps) * weight` over the last dim `H` (Zhang and Sennrich, 2019).
///
/// Shape: `[.., H] -> [.., H]`; `weight[H]`.
///
/// Every rank normalizes the same activation, or its shard of a sequence-parallel stream; in the second case the
/// gradient of the weight is reduced over the axis.
pub struct RmsNorm<H> {
    weight: ParamRef,
    eps: f32,
    dim: PhantomData<H>,
}

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last dim `H` (Ba, Kiros and Hinton, 2016).
///
/// Shape: `[.., H] -> [.., H]`; `weight[H]`, `bias[H]`.
pub struct LayerNorm<H> {
    weight: ParamRef,
    bias: ParamRef,
    eps: f32,
    dim: PhantomData<H>,
}

/// Input shapes of a norm over `H`: they end in a whole `H`.
#[diagnostic::on_unimplemented(
    message = "a norm over `{H}` cannot take an activation shaped `{Self}`",
    label = "does not end in a whole `{H}`",
    note = "a norm reads all of `{H}`: reduce or gather the activation first, or end the region with a row-parallel \
            layer (`#[sharded(tp = \"row\")]`)"
)]
pub trait NormInput<H>: Dims {
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole> NormInput<H> for X {
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
            self.eps,
            S::GRADIENT_AXES,
        ))
    }
}

/// Normalizes `x`.
impl<H, S: NormInput<H>, T: Operand<Shape = S>> Layer<T> for LayerNorm<H> {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let axes = S::GRADIENT_AXES;
        Tensor::from_untyped(layer_norm(
            x.operand().value(),
            &self.weight,
            &self.bias,
            self.eps,
            axes,
        ))
    }
}

impl<H: Whole> Build for RmsNorm<H>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let weight = builder.param::<(H,)>("weight", Init::Ones).handle().clone();
        RmsNorm { weight, eps: builder.sizes().norm_eps, dim: PhantomData }
    }
}

impl<H: Whole> Build for LayerNorm<H>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let weight = builder.param::<(H,)>("weight", Init::Ones).handle().clone();
        let bias = builder.param::<(H,)>("bias", Init::Zeros).handle().clone();
        LayerNorm { weight, bias, eps: builder.sizes().norm_eps, dim: PhantomData }
    }
}

stage_layers! {
    LayerNorm<H>;
    RmsNorm<H>;
}

#[track_caller]
fn rms_norm(x: &Value, weight: &ParamRef, eps: f32, axes: AxisSet) -> Value {
    weight.check_trailing(x.extents());
    let in_backward = InBackward::Reads;
    let weight = OperationParam { param: weight, gradient_axes: axes, in_backward };
    apply(RmsNormOperation { eps }, operands(x, [weight]))
}

#[track_caller]
fn layer_norm(x: &Value, weight: &ParamRef, bias: &ParamRef, eps: f32, axes: AxisSet) -> Value {
    weight.check_trailing(x.extents());
    let param = |param, in_backward| OperationParam { param, gradient_axes: axes, in_backward };
    let params = [param(weight, InBackward::Reads), param(bias, InBackward::Ignores)];
    apply(LayerNormOperation { eps }, operands(x, params))
}

/// Returns the operands of a norm; the kernel of forward computes the residual sum before it.
fn operands<'a, const P: usize>(
    x: &'a Value,
    params: [OperationParam<'a>; P],
) -> Operands<'a, Count<1>, Count<P>> {
    Operands {
        rank: x.rank(),
        path: params[0].param.path(),
        inputs: [OperationInput::new(x, InBackward::Reads).or_deferred_sum()],
        params,
        extents: x.extents().to_vec(),
    }
}

/// Calls `kernel` with `x`, or with the two terms of a deferred `x`, whose sum the kernel computes.
fn with_residual(x: &Value, mut kernel: impl FnMut(View<'_>, Option<ResidualSum<'_>>)) {
    if !x.compute_sum(|x, term, sum| kernel(x, Some(ResidualSum { term, sum }))) {
        kernel(x.compute().data.view(), None);
    }
}

struct RmsNormOperation {
    eps: f32,
}

impl Operation<Count<1>, Count<1>> for RmsNormOperation {
    /// The inverse root mean square of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 1]) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        let mut y = rank.alloc_activation(x.len());
        let mut inv_rms = rank.alloc_statistics(x.len() / weight.len());
        with_residual(x, |x, residual| {
            let (y, inv_rms) = (y.view_mut(), inv_rms.view_mut());
            let eps = self.eps;
            rank.backend().rms_norm(RmsNormArgs { x, residual, weight, eps, y, inv_rms });
        });
        (y, [inv_rms])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        [inv_rms]: [Arc<Buffer>; 1],
    ) {
        let OperationBackward { gradients, inputs: [mut x], params: [weight_use], .. } = backward;
        let (rank, dy) = (gradients.rank, backward.gradient);
        let (data, weight) = (x.take_saved(rank), weight_use.param().values());
        gradients.accumulate_with(x.source(), data.len(), [&weight_use], |dx, [dweight]| {
            rank.backend().rms_norm_backward(RmsNormBackwardArgs {
                x: data.view(),
                weight: weight.view(),
                inv_rms: inv_rms.view(),
                dy: dy.view(),
                dx,
                dweight,
            });
        });
    }
}

struct LayerNormOperation {
    eps: f32,
}

impl Operation<Count<1>, Count<2>> for LayerNormOperation {
    /// The mean and the inverse standard deviation of each row.
    type Saved = [Arc<Buffer>; 2];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<2>>) -> (Buffer, [Buffer; 2]) {
        let OperationForward { rank, inputs: [x], params: [weight, bias], .. } = forward;
        let mut y = rank.alloc_activation(x.len());
        let [mut mean, mut inv_std] =
            [(); 2].map(|()| rank.alloc_statistics(x.len() / weight.len()));
        with_residual(x, |x, residual| {
            let [y, mean, inv_std] = [&mut y, &mut mean, &mut inv_std].map(Buffer::view_mut);
            let eps = self.eps;
            let args = LayerNormArgs { x, residual, weight, bias, eps, y, mean, inv_std };
            rank.backend().layer_norm(args);
        });
        (y, [mean, inv_std])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<2>>,
        [mean, inv_std]: [Arc<Buffer>; 2],
    ) {
        let OperationBackward {
            gradients, inputs: [mut x], params: [weight_use, bias_use], ..
        } = backward;
        let (rank, dy) = (gradients.rank, backward.gradient);
        let (data, weight) = (x.take_saved(rank), weight_use.param().values());
        let uses = [&weight_use, &bias_use];
        gradients.accumulate_with(x.source(), data.len(), uses, |dx, [dweight, dbias]| {
            rank.backend().layer_norm_backward(LayerNormBackwardArgs {
                x: data.view(),
                weight: weight.view(),
                mean: mean.view(),
                inv_std: inv_std.view(),
                dy: dy.view(),
                dx,
                dweight,
                dbias,
            });
        });
    }
}

debug_layers! {
    RmsNorm<H>: weight;
    LayerNorm<H>: weight, bias;
}

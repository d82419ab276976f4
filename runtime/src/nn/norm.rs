//! RMSNorm and LayerNorm over the last dim.

use std::marker::PhantomData;

use crate::backend::{
    Buffer, LayerNormArgs, LayerNormBackwardArgs, ResidualSum, RmsNormArgs, RmsNormBackwardArgs,
};
use crate::layout::{AxisSet, Dim, Dims, Ends, OnEveryRank, Seal, Whole};
use crate::tensor::{InBackward, Init, Operand, ParamRef, ParamUse, Tensor, Value, gradient_axes};

use super::{Build, Builder, Layer};

/// `x / sqrt(mean(x²) + eps) * weight` over the last dim `H` (Zhang and Sennrich, 2019).
///
/// Every rank normalizes the same activation, or its shard of a sequence-parallel stream; in the second case the
/// gradient of the weight is reduced over the axis.
pub struct RmsNorm<H> {
    weight: ParamRef,
    eps: f32,
    dim: PhantomData<H>,
}

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last dim `H` (Ba, Kiros and Hinton, 2016).
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
    note = "a norm reads all of `{H}`: reduce or gather the activation first, or end the region with a row-parallel layer (`#[sharded(tp = \"row\")]`)"
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

impl<H> RmsNorm<H> {
    /// Normalizes `x`.
    #[track_caller]
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        T::Shape: NormInput<H>,
    {
        Tensor::wrap(rms_norm(x.operand().value(), &self.weight, self.eps, T::Shape::GRADIENT_AXES))
    }
}

impl<H> LayerNorm<H> {
    /// Normalizes `x`.
    #[track_caller]
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        T::Shape: NormInput<H>,
    {
        let axes = T::Shape::GRADIENT_AXES;
        Tensor::wrap(layer_norm(x.operand().value(), &self.weight, &self.bias, self.eps, axes))
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

impl<H, X: NormInput<H>> Layer<Tensor<X>> for RmsNorm<H> {
    type Out = Tensor<X>;

    #[track_caller]
    fn forward(&self, x: &Tensor<X>) -> Tensor<X> {
        RmsNorm::forward(self, x)
    }
}

impl<H, X: NormInput<H>> Layer<Tensor<X>> for LayerNorm<H> {
    type Out = Tensor<X>;

    #[track_caller]
    fn forward(&self, x: &Tensor<X>) -> Tensor<X> {
        LayerNorm::forward(self, x)
    }
}

/// Evaluates the input of a norm, except for a sum of two values, which the norm kernel computes. Deferred matmuls of
/// the sum are evaluated first, as their parameters are unsharded before those of the norm.
fn compute_unless_sum(x: &Value) {
    x.compute_matmuls();
    if !x.is_deferred_sum() {
        x.compute();
    }
}

#[track_caller]
fn rms_norm(x: &Value, weight: &ParamRef, eps: f32, axes: AxisSet) -> Value {
    let rank = x.rank();
    rank.check_same(weight.rank());
    weight.check_trailing(x.extents());
    let (len, rows) = (x.len(), x.len() / weight.local_len());
    compute_unless_sum(x);
    let values = weight.read(axes);
    let [y, inv_rms] = rank.segments().saved_or_compute(weight.path(), || {
        let (mut y, mut inv_rms) = (rank.alloc(len), rank.stats(rows));
        let backend = rank.backend();
        let was_sum = x.compute_sum(|a, b, sum| {
            let (y, inv_rms) = (y.view_mut(), inv_rms.view_mut());
            backend.rms_norm(RmsNormArgs {
                x: a,
                residual: Some(ResidualSum { term: b, sum }),
                weight: values.view(),
                eps,
                y,
                inv_rms,
            });
        });
        if !was_sum {
            let x = x.compute().data;
            backend.rms_norm(RmsNormArgs {
                x: x.view(),
                residual: None,
                weight: values.view(),
                eps,
                y: y.view_mut(),
                inv_rms: inv_rms.view_mut(),
            });
        }
        [y, inv_rms]
    });
    drop(values);
    let ready = x.compute();
    let node = rank.is_recording().then(|| {
        let (saved, source) = (x.save(), ready.node);
        let weight_use = ParamUse::new(weight, axes, InBackward::Reads);
        rank.tape().record(move |gradients, dy| {
            let rank = gradients.rank;
            let x = saved.take(rank);
            let weight = weight_use.param().values();
            gradients.accumulate_with(source, len, [&weight_use], move |dx, [dweight]| {
                let (x, inv_rms, dy) = (x.view(), inv_rms.view(), dy.view());
                rank.backend().rms_norm_backward(RmsNormBackwardArgs {
                    x,
                    weight: weight.view(),
                    inv_rms,
                    dy,
                    dx,
                    dweight,
                });
            });
        })
    });
    Value::alias(rank, x.extents().to_vec(), y, node)
}

#[track_caller]
fn layer_norm(x: &Value, weight: &ParamRef, bias: &ParamRef, eps: f32, axes: AxisSet) -> Value {
    let rank = x.rank();
    rank.check_same(weight.rank());
    weight.check_trailing(x.extents());
    let (len, rows) = (x.len(), x.len() / weight.local_len());
    compute_unless_sum(x);
    let (weights, biases) = (weight.read(axes), bias.read(axes));
    let [y, mean, inv_std] = rank.segments().saved_or_compute(weight.path(), || {
        let mut y = rank.alloc(len);
        let (mut mean, mut inv_std) = (rank.stats(rows), rank.stats(rows));
        let backend = rank.backend();
        let (weights, biases) = (weights.view(), biases.view());
        let was_sum = x.compute_sum(|a, b, sum| {
            let [y, mean, inv_std] = [&mut y, &mut mean, &mut inv_std].map(Buffer::view_mut);
            backend.layer_norm(LayerNormArgs {
                x: a,
                residual: Some(ResidualSum { term: b, sum }),
                weight: weights,
                bias: biases,
                eps,
                y,
                mean,
                inv_std,
            });
        });
        if !was_sum {
            let x = x.compute().data;
            let [y, mean, inv_std] = [&mut y, &mut mean, &mut inv_std].map(Buffer::view_mut);
            backend.layer_norm(LayerNormArgs {
                x: x.view(),
                residual: None,
                weight: weights,
                bias: biases,
                eps,
                y,
                mean,
                inv_std,
            });
        }
        [y, mean, inv_std]
    });
    drop((weights, biases));
    let ready = x.compute();
    let node = rank.is_recording().then(|| {
        let (saved, source) = (x.save(), ready.node);
        let weight_use = ParamUse::new(weight, axes, InBackward::Reads);
        let bias_use = ParamUse::new(bias, axes, InBackward::Ignores);
        rank.tape().record(move |gradients, dy| {
            let rank = gradients.rank;
            let x = saved.take(rank);
            let weight = weight_use.param().values();
            let uses = [&weight_use, &bias_use];
            gradients.accumulate_with(source, len, uses, move |dx, [dweight, dbias]| {
                let (x, mean, inv_std, dy) = (x.view(), mean.view(), inv_std.view(), dy.view());
                let weight = weight.view();
                rank.backend().layer_norm_backward(LayerNormBackwardArgs {
                    x,
                    weight,
                    mean,
                    inv_std,
                    dy,
                    dx,
                    dweight,
                    dbias,
                });
            });
        })
    });
    Value::alias(rank, x.extents().to_vec(), y, node)
}

//! The norms as untyped operations.

use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{
    Count, InBackward, Operands, Operation, OperationBackward, OperationForward, OperationInput,
    OperationParam, ParamRef, Rank, Value, apply,
};
use meshwright_backend::ops::norm::{
    GainAndGradient, LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormSumsArgs, RowSums,
};
use meshwright_backend::{Buffer, ReduceOp, ResidualSum, View};
use meshwright_comm::Site;

use super::super::NormOptions;

/// Rows whose columns are divided among the ranks of some axes.
pub(super) struct SplitRows {
    pub(super) axes: AxisSet,
    /// Columns of a whole row.
    pub(super) cols: usize,
    pub(super) site: Site,
}

impl SplitRows {
    /// Returns the sums over whole rows of squares of `x`, or of its products with `factors`.
    fn sums(
        &self,
        rank: &Rank,
        cols: usize,
        x: View<'_>,
        factors: Option<GainAndGradient<'_>>,
    ) -> Buffer {
        let mut sums = rank.alloc_statistics(x.len() / cols);
        let args = RmsNormSumsArgs { cols, x, factors, sums: sums.view_mut() };
        rank.backend().rms_norm_sums(args);
        rank.all_reduce(self.axes, &self.site, ReduceOp::Sum, sums.view_mut());
        sums
    }

    /// Returns the sums as operands of a kernel.
    fn given<'s>(rows: Option<&Self>, sums: Option<&'s Buffer>) -> Option<RowSums<'s>> {
        Some(RowSums { sums: sums?.view(), cols: rows?.cols })
    }
}

/// Normalizes `x`; with `split`, rows whose other columns other ranks have.
#[track_caller]
pub(super) fn rms_norm(
    x: &Value,
    weight: &ParamRef,
    options: NormOptions,
    axes: AxisSet,
    split: Option<SplitRows>,
) -> Value {
    weight.check_trailing(x.extents());
    let in_backward = InBackward::Reads;
    let weight = OperationParam { param: weight, gradient_axes: axes, in_backward };
    let split = split.filter(|split| x.rank().degree_of(split.axes) > 1);
    // The sum of a residual is computed before its squares.
    let sum = if split.is_some() { Sum::Before } else { Sum::InKernel };
    apply(RmsNormOperation { options, split }, operands(x, [weight], sum))
}

/// Normalizes `x`.
#[track_caller]
pub(super) fn layer_norm(
    x: &Value,
    weight: &ParamRef,
    bias: &ParamRef,
    eps: f32,
    axes: AxisSet,
) -> Value {
    weight.check_trailing(x.extents());
    let param = |param, in_backward| OperationParam { param, gradient_axes: axes, in_backward };
    let params = [param(weight, InBackward::Reads), param(bias, InBackward::Ignores)];
    apply(LayerNormOperation { eps }, operands(x, params, Sum::InKernel))
}

/// Normalizes `x` as a LayerNorm without a bias does.
#[track_caller]
pub(super) fn centered_norm(x: &Value, weight: &ParamRef, eps: f32, axes: AxisSet) -> Value {
    weight.check_trailing(x.extents());
    let weight =
        OperationParam { param: weight, gradient_axes: axes, in_backward: InBackward::Reads };
    apply(CenteredNormOperation { eps }, operands(x, [weight], Sum::InKernel))
}

/// The computation of a residual that is added before a norm.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    InKernel,
    Before,
}

/// Returns the operands of a norm.
fn operands<'a, const P: usize>(
    x: &'a Value,
    params: [OperationParam<'a>; P],
    sum: Sum,
) -> Operands<'a, Count<1>, Count<P>> {
    let input = OperationInput::new(x, InBackward::Reads);
    Operands {
        rank: x.rank(),
        path: params[0].param.path(),
        inputs: [if sum == Sum::InKernel { input.or_deferred_sum() } else { input }],
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
    options: NormOptions,
    split: Option<SplitRows>,
}

impl Operation<Count<1>, Count<1>> for RmsNormOperation {
    /// The inverse root mean square of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 1]) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        let mut y = rank.alloc_activation(x.len());
        let mut inv_rms = rank.alloc_statistics(x.len() / weight.len());
        let split = self.split.as_ref();
        let sums = split.map(|split| split.sums(rank, weight.len(), x.compute().data.view(), None));
        with_residual(x, |x, residual| {
            let (y, inv_rms) = (y.view_mut(), inv_rms.view_mut());
            let NormOptions { eps, offset } = self.options;
            let squares = SplitRows::given(split, sums.as_ref());
            let args = RmsNormArgs { x, residual, weight, offset, eps, squares, y, inv_rms };
            rank.backend().rms_norm(args);
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
        let split = self.split.as_ref();
        let sums = split.map(|split| {
            let offset = self.options.offset;
            let factors = GainAndGradient { weight: weight.view(), offset, dy: dy.view() };
            split.sums(rank, weight.view().len(), data.view(), Some(factors))
        });
        gradients.accumulate_with(x.source(), data.len(), [&weight_use], |dx, [dweight]| {
            rank.backend().rms_norm_backward(RmsNormBackwardArgs {
                x: data.view(),
                weight: weight.view(),
                offset: self.options.offset,
                inv_rms: inv_rms.view(),
                dy: dy.view(),
                dots: SplitRows::given(split, sums.as_ref()),
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
        layer_norm_forward(rank, x, [weight, bias], self.eps)
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

/// A LayerNorm without a bias.
struct CenteredNormOperation {
    eps: f32,
}

impl Operation<Count<1>, Count<1>> for CenteredNormOperation {
    /// The mean and the inverse standard deviation of each row.
    type Saved = [Arc<Buffer>; 2];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 2]) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        // The kernel of both norms reads a bias.
        let mut bias = rank.alloc_activation(weight.len());
        rank.backend().fill(bias.view_mut(), 0.0);
        layer_norm_forward(rank, x, [weight, bias.view()], self.eps)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        [mean, inv_std]: [Arc<Buffer>; 2],
    ) {
        let OperationBackward { gradients, inputs: [mut x], params: [weight_use], .. } = backward;
        let (rank, dy) = (gradients.rank, backward.gradient);
        let (data, weight) = (x.take_saved(rank), weight_use.param().values());
        gradients.accumulate_with(x.source(), data.len(), [&weight_use], |dx, [dweight]| {
            rank.backend().layer_norm_backward(LayerNormBackwardArgs {
                x: data.view(),
                weight: weight.view(),
                mean: mean.view(),
                inv_std: inv_std.view(),
                dy: dy.view(),
                dx,
                dweight,
                dbias: None,
            });
        });
    }
}

/// Computes a LayerNorm, and the mean and the inverse standard deviation of each row.
fn layer_norm_forward(
    rank: &Rank,
    x: &Value,
    [weight, bias]: [View<'_>; 2],
    eps: f32,
) -> (Buffer, [Buffer; 2]) {
    let mut y = rank.alloc_activation(x.len());
    let [mut mean, mut inv_std] = [(); 2].map(|()| rank.alloc_statistics(x.len() / weight.len()));
    with_residual(x, |x, residual| {
        let [y, mean, inv_std] = [&mut y, &mut mean, &mut inv_std].map(Buffer::view_mut);
        let args = LayerNormArgs { x, residual, weight, bias, eps, y, mean, inv_std };
        rank.backend().layer_norm(args);
    });
    (y, [mean, inv_std])
}

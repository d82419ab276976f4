//! Fused linear cross-entropy: projection onto the vocabulary and loss, chunk by chunk of tokens.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::{AxisSet, Dims};
use crate::tensor::{
    AlwaysRecomputed, Arity, Count, Extent, InBackward, Loss, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, OperationParam, ParamRef, ParamUse,
    RowLosses, TapeGradients, Targets, Value, apply, begin_function, set_backward_location,
};
use meshwright_backend::{Buffer, View, ViewMut};
use meshwright_comm::Site;

use super::head_projection::{HeadProjection, ProjectionGradients, WantedGradients, weight_gemm};
use super::logit_stats::{LogitRows, Stats};
use super::{HeadOptions, LogitChunks};

/// The parameters and options of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadParams<'a> {
    pub(super) weight: &'a ParamRef,
    pub(super) bias: Option<&'a ParamRef>,
    /// The axes over which the gradients of parameters are partial.
    pub(super) axes: AxisSet,
    /// The axes over which the vocabulary is split.
    pub(super) vocab_axes: AxisSet,
    pub(super) options: HeadOptions,
}

impl HeadParams<'_> {
    /// Returns this rank's range of the vocabulary.
    pub(super) fn vocab(&self) -> Extent {
        self.weight.local_extents()[0]
    }

    /// Returns true for weight and bias if they are trained.
    fn is_trained(&self) -> [bool; 2] {
        [Some(self.weight), self.bias].map(|param| param.is_some_and(|param| !param.is_frozen()))
    }

    /// Checks that each target is in the vocabulary or ignored.
    #[track_caller]
    pub(super) fn check_targets<S: Dims>(&self, targets: &Targets<S>) {
        let rank = targets.rank();
        let (axes, vocab, options) = (self.vocab_axes, self.vocab(), self.options);
        LogitRows { rank, axes, site: self.weight.site(), vocab, options }.check_targets(targets);
    }

    /// Applies an operation of these parameters.
    #[track_caller]
    pub(super) fn apply<O, const N: usize>(
        &self,
        operation: O,
        inputs: [&Value; N],
        in_backward: InBackward,
        extents: Vec<Extent>,
    ) -> Value
    where
        O: Operation<Count<N>, Count<1>> + Operation<Count<N>, Count<2>>,
    {
        let (rank, path) = (inputs[0].rank(), self.weight.path());
        let inputs = inputs.map(|x| OperationInput::new(x, in_backward));
        let param = |param| OperationParam { param, gradient_axes: self.axes, in_backward };
        match self.bias {
            None => {
                let params = [param(self.weight)];
                let operands =
                    Operands::<Count<N>, Count<1>> { rank, path, inputs, params, extents };
                apply(operation, operands)
            }
            Some(bias) => {
                let params = [self.weight, bias].map(param);
                let operands =
                    Operands::<Count<N>, Count<2>> { rank, path, inputs, params, extents };
                apply(operation, operands)
            }
        }
    }
}

/// Returns the mean of the losses over the targets that are not ignored.
#[track_caller]
pub(super) fn fused_loss<S: Dims>(
    x: &Value,
    head: HeadParams<'_>,
    targets: &Targets<S>,
) -> Loss<S> {
    head.check_targets(targets);
    let row_losses = RowLosses::of_targets(targets);
    let operation = HeadOperation {
        site: head.weight.site().clone(),
        vocab_axes: head.vocab_axes,
        vocab: head.vocab(),
        options: head.options,
        hidden: x.extents()[x.extents().len() - 1].local,
        is_trained: head.is_trained(),
        targets: Arc::clone(targets.id_buffer()),
        counted: Arc::clone(targets.counted_targets()),
        row_losses: row_losses.clone(),
    };
    let outer = begin_function("LmHead::loss");
    let sum = head.apply(operation, [x], InBackward::Ignores, Vec::new());
    set_backward_location(outer);
    Loss::new(sum, targets.target_count()).with_rows(row_losses)
}

/// The sum of the losses of all tokens. Its forward computes the required gradients too, if it is recorded.
struct HeadOperation {
    site: Site,
    /// The axes over which the vocabulary is split.
    vocab_axes: AxisSet,
    /// This rank's range of the vocabulary.
    vocab: Extent,
    options: HeadOptions,
    /// Elements of a row of the input.
    hidden: usize,
    /// True for weight and bias if they are trained.
    is_trained: [bool; 2],
    /// Target ids.
    targets: Arc<Buffer>,
    /// 0 for the rows whose target is ignored, else 1.
    counted: Arc<Buffer>,
    /// The place for the losses of rows, if they are kept.
    row_losses: Option<RowLosses>,
}

impl<P: Arity> Operation<Count<1>, P> for HeadOperation {
    /// The gradients of input, weight and bias, if forward is recorded.
    type Saved = AlwaysRecomputed<Option<HeadGradients>>;

    fn forward(
        &self,
        forward: OperationForward<'_, Count<1>, P>,
    ) -> (Buffer, Option<HeadGradients>) {
        let OperationForward { rank, inputs: [x], params, recorded } = forward;
        let HeadOperation { vocab, hidden, options, .. } = *self;
        let (input, tokens) = (x.compute().data, x.len() / hidden);
        let degree = rank.degree_of(self.vocab_axes);
        let chunks = LogitChunks::for_tokens(rank, tokens, vocab.global.div_ceil(degree));
        let projection = HeadProjection::new(rank, params.as_ref(), hidden, vocab, options);
        let head = FusedHead {
            x: input.view(),
            projection: &projection,
            rows: LogitRows { rank, axes: self.vocab_axes, site: &self.site, vocab, options },
            targets: self.targets.view(),
            weights: self.counted.view(),
            row_losses: self.row_losses.as_ref(),
        };
        // With a single chunk on a device, backward computes the weight's gradient in place from the logits' gradient.
        let is_deferred = chunks.count() == 1 && rank.allocator().device().is_some();
        let [weight, bias] = self.is_trained;
        let wanted =
            WantedGradients { input: x.requires_grad(), weight: weight && !is_deferred, bias };
        let mut gradients = (recorded && (weight || bias || wanted.input))
            .then(|| ProjectionGradients::new(&projection, tokens, wanted));
        let (sum, logits) = head.compute_chunks(chunks, gradients.as_mut());
        let saved = gradients.map(|ProjectionGradients { dx, dweight, dbias }| {
            let dweight = match dweight {
                Some(sum) => WeightGradient::Summed(sum),
                None if weight => WeightGradient::Deferred { input, logits, hidden },
                None => WeightGradient::Frozen,
            };
            HeadGradients { dx, dweight, dbias }
        });
        (sum, saved)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, P>,
        AlwaysRecomputed(saved): AlwaysRecomputed<Option<HeadGradients>>,
    ) {
        let OperationBackward { gradients, inputs: [x], params, gradient, .. } = backward;
        let HeadGradients { mut dx, dweight, dbias } =
            saved.expect("a recorded head has computed its gradients");
        let seed = gradients.scalar_gradient(&gradient);
        if let Some(dx) = dx.as_mut().filter(|_| seed != 1.0) {
            gradients.rank.backend().scale(dx.view_mut(), seed);
        }
        let params = params.as_ref();
        // Not deferred: the sum, or the logits' gradient, would be kept until then.
        dweight.finish_gradient(&params[0], gradients, seed);
        if let (Some(bias_use), Some(mut dbias)) = (params.get(1), dbias) {
            if seed != 1.0 {
                gradients.rank.backend().scale(dbias.view_mut(), seed);
            }
            bias_use.finish_with(gradients, &dbias);
        }
        if let Some(dx) = dx {
            x.add_gradient(gradients, Arc::new(dx));
        }
    }
}

/// A projection onto the vocabulary with its loss, computed chunk by chunk.
struct FusedHead<'a> {
    x: View<'a>,
    projection: &'a HeadProjection<'a>,
    rows: LogitRows<'a>,
    targets: View<'a>,
    /// 0 for the rows whose target is ignored, else 1.
    weights: View<'a>,
    row_losses: Option<&'a RowLosses>,
}

/// Gradients of the summed loss as forward saves them for backward.
struct HeadGradients {
    /// `None` if the input requires no gradient.
    dx: Option<Buffer>,
    dweight: WeightGradient,
    dbias: Option<Buffer>,
}

/// The weight's gradient as forward saves it for backward.
enum WeightGradient {
    /// Accumulated over chunks in f32.
    Summed(Buffer),
    /// The operands of the matmul that computes it: the input and the gradient of all logits.
    Deferred { input: Arc<Buffer>, logits: Buffer, hidden: usize },
    /// None: the weight is frozen.
    Frozen,
}

impl WeightGradient {
    /// Adds `seed` times the gradient to the gradient of the parameter.
    fn finish_gradient(self, weight_use: &ParamUse, gradients: &TapeGradients<'_>, seed: f32) {
        let backend = gradients.rank.backend();
        match self {
            WeightGradient::Frozen => {}
            WeightGradient::Summed(mut dweight) => {
                if seed != 1.0 {
                    backend.scale(dweight.view_mut(), seed);
                }
                weight_use.finish_with(gradients, &dweight);
            }
            WeightGradient::Deferred { input, mut logits, hidden } => {
                if seed != 1.0 {
                    backend.scale(logits.view_mut(), seed);
                }
                let tokens = input.len() / hidden;
                weight_use.finish_use(gradients, |dweight, accumulate| {
                    let gemm = weight_gemm(logits.len() / tokens, hidden, tokens, accumulate);
                    backend.gemm(&gemm, logits.view(), input.view(), dweight);
                });
            }
        }
    }
}

impl FusedHead<'_> {
    /// Computes all chunks. Returns the sum of the losses, and the logits buffer, which holds the logits' gradient of
    /// the last chunk in the compute dtype if `gradients` are computed.
    fn compute_chunks(
        self,
        chunks: LogitChunks,
        mut gradients: Option<&mut ProjectionGradients>,
    ) -> (Buffer, Buffer) {
        let LogitRows { rank, vocab, .. } = self.rows;
        // In the compute dtype unless the options ask for f32; the GEMM and the loss accumulate in f32.
        let (dtype, len) = (self.projection.logits_dtype(), chunks.longest() * vocab.local);
        let mut logits = rank.alloc_scratch(dtype, len);
        let is_wide = dtype != rank.compute_dtype() && gradients.is_some();
        let mut rounded = is_wide.then(|| rank.alloc_scratch(rank.compute_dtype(), len));
        let mut stats = Stats::new(rank, self.targets.len());
        for chunk in chunks.ranges() {
            let part = 0..chunk.len() * vocab.local;
            let logits = logits.view_mut().into_slice(part.clone());
            let rounded = rounded.as_mut().map(|rounded| rounded.view_mut().into_slice(part));
            self.compute_chunk(&mut stats, chunk, logits, rounded, gradients.as_deref_mut());
        }
        if let Some(gradients) = gradients {
            gradients.clear_without_chunks(chunks.count());
        }
        stats.fill_row_losses(rank, self.row_losses, self.targets);
        (stats.loss(rank, self.targets), rounded.unwrap_or(logits))
    }

    fn compute_chunk(
        &self,
        stats: &mut Stats,
        chunk: Range<usize>,
        mut logits: ViewMut<'_>,
        rounded: Option<ViewMut<'_>>,
        gradients: Option<&mut ProjectionGradients>,
    ) {
        let k = self.projection.hidden;
        let input = self.x.slice(chunk.start * k..chunk.end * k);
        let targets = self.targets.slice(chunk.clone());
        self.projection.write_logits(input, logits.reborrow());
        let Some(gradients) = gradients else {
            self.rows.fill_stats(stats, chunk.start, logits.as_view(), targets);
            return;
        };
        let scale = self.weights.slice(chunk.clone());
        self.rows.differentiate(stats, chunk.start, logits.reborrow(), targets, scale);
        gradients.add_logits(self.projection, chunk.start, input, logits, rounded);
    }
}

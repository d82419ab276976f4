//! Fused linear cross-entropy: projection onto the vocabulary and loss, chunk by chunk of tokens.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::{AxisSet, Dims};
use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Loss, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, OperationParam, ParamRef, ParamUse, RowLosses, TapeGradients,
    Targets, Value, apply, begin_function, set_backward_location,
};
use meshwright_backend::{Buffer, DType, Gemm, View, ViewMut};
use meshwright_comm::Site;

use super::LogitChunks;
use super::cross_entropy::{LogitRows, Stats};

/// Returns the mean of the losses over the targets that are not ignored.
#[track_caller]
pub(super) fn fused_loss<S: Dims>(
    x: &Value,
    weight: &ParamRef,
    axes: AxisSet,
    vocab_axes: AxisSet,
    targets: &Targets<S>,
) -> Loss<S> {
    let rank = x.rank();
    let vocab = weight.local_extents()[0];
    LogitRows { rank, axes: vocab_axes, site: weight.site(), vocab }.check_targets(targets);
    let in_backward = InBackward::Ignores;
    let row_losses = RowLosses::of_targets(targets);
    let operation = HeadOperation {
        site: weight.site().clone(),
        vocab_axes,
        vocab,
        hidden: x.extents()[x.extents().len() - 1].local,
        is_trained: !weight.is_frozen(),
        targets: Arc::clone(targets.id_buffer()),
        counted: Arc::clone(targets.counted_targets()),
        row_losses: row_losses.clone(),
    };
    let operands = Operands::<Count<1>, Count<1>> {
        rank,
        path: weight.path(),
        inputs: [OperationInput::new(x, in_backward)],
        params: [OperationParam { param: weight, gradient_axes: axes, in_backward }],
        extents: Vec::new(),
    };
    let outer = begin_function("LmHead::loss");
    let sum = apply(operation, operands);
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
    /// Elements of a row of the input.
    hidden: usize,
    /// True if the weight is trained.
    is_trained: bool,
    /// Target ids.
    targets: Arc<Buffer>,
    /// 0 for the rows whose target is ignored, else 1.
    counted: Arc<Buffer>,
    /// The place for the losses of rows, if they are kept.
    row_losses: Option<RowLosses>,
}

impl Operation<Count<1>, Count<1>> for HeadOperation {
    /// The gradients of input and weight, if forward is recorded.
    type Saved = AlwaysRecomputed<Option<(Option<Buffer>, WeightGradient)>>;

    fn forward(
        &self,
        forward: OperationForward<'_, Count<1>, Count<1>>,
    ) -> (Buffer, Option<(Option<Buffer>, WeightGradient)>) {
        let OperationForward { rank, inputs: [x], params: [weight], recorded } = forward;
        let HeadOperation { vocab, hidden, is_trained, .. } = *self;
        let (input, tokens) = (x.compute().data, x.len() / hidden);
        let degree = rank.degree_of(self.vocab_axes);
        let chunks = LogitChunks::for_tokens(rank, tokens, vocab.global.div_ceil(degree));
        let head = FusedHead {
            x: input.view(),
            weight,
            rows: LogitRows { rank, axes: self.vocab_axes, site: &self.site, vocab },
            targets: self.targets.view(),
            weights: self.counted.view(),
            row_losses: self.row_losses.as_ref(),
            hidden,
        };
        // With a single chunk on a device, backward computes the weight's gradient in place from the logits' gradient.
        let is_deferred = chunks.count() == 1 && rank.allocator().device().is_some();
        let reads_grad = x.requires_grad();
        let mut gradients = (recorded && (is_trained || reads_grad)).then(|| HeadGradients {
            dx: reads_grad.then(|| rank.alloc_activation(tokens * hidden)),
            dweight: (is_trained && !is_deferred)
                .then(|| rank.alloc_scratch(DType::F32, weight.len())),
        });
        let (sum, logits) = head.compute_chunks(chunks, gradients.as_mut());
        let saved = gradients.map(|HeadGradients { dx, dweight }| match dweight {
            Some(sum) => (dx, WeightGradient::Summed(sum)),
            None if is_trained => (dx, WeightGradient::Deferred { input, logits, hidden }),
            None => (dx, WeightGradient::Frozen),
        });
        (sum, saved)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        AlwaysRecomputed(saved): AlwaysRecomputed<Option<(Option<Buffer>, WeightGradient)>>,
    ) {
        let OperationBackward { gradients, inputs: [x], params: [weight_use], gradient, .. } =
            backward;
        let (mut dx, dweight) = saved.expect("a recorded head has computed its gradients");
        let seed = gradients.scalar_gradient(&gradient);
        if let Some(dx) = dx.as_mut().filter(|_| seed != 1.0) {
            gradients.rank.backend().scale(dx.view_mut(), seed);
        }
        // Not deferred: the sum, or the logits' gradient, would be kept until then.
        dweight.finish_gradient(&weight_use, gradients, seed);
        if let Some(dx) = dx {
            x.add_gradient(gradients, Arc::new(dx));
        }
    }
}

/// A projection onto the vocabulary with its loss, computed chunk by chunk.
struct FusedHead<'a> {
    x: View<'a>,
    weight: View<'a>,
    rows: LogitRows<'a>,
    targets: View<'a>,
    /// 0 for the rows whose target is ignored, else 1.
    weights: View<'a>,
    row_losses: Option<&'a RowLosses>,
    hidden: usize,
}

/// Gradients of the summed loss, written chunk by chunk.
struct HeadGradients {
    /// `None` if the input requires no gradient.
    dx: Option<Buffer>,
    /// `None` if backward computes it, or the weight is frozen.
    dweight: Option<Buffer>,
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

/// The GEMM for the weight's gradient, `[vocab, hidden]`, from the gradient of the logits of `tokens` tokens and the
/// input.
fn weight_gemm(vocab: usize, hidden: usize, tokens: usize, accumulate: bool) -> Gemm {
    Gemm { m: vocab, n: hidden, k: tokens, trans_a: true, trans_b: false, accumulate }
}

impl FusedHead<'_> {
    /// Computes all chunks. Returns the sum of the losses, and the logits buffer, which holds the logits' gradient of
    /// the last chunk if `gradients` are computed.
    fn compute_chunks(
        self,
        chunks: LogitChunks,
        mut gradients: Option<&mut HeadGradients>,
    ) -> (Buffer, Buffer) {
        let LogitRows { rank, vocab, .. } = self.rows;
        // In the compute dtype, like the result of every GEMM; the GEMM and the loss accumulate in f32.
        let mut logits = rank.alloc_scratch(rank.compute_dtype(), chunks.longest() * vocab.local);
        let mut stats = Stats::new(rank, self.targets.len());
        for chunk in chunks.ranges() {
            let logits = logits.view_mut().into_slice(0..chunk.len() * vocab.local);
            self.compute_chunk(&mut stats, chunk, logits, gradients.as_deref_mut());
        }
        if let (Some(HeadGradients { dweight: Some(dweight), .. }), 0) = (gradients, chunks.count())
        {
            dweight.view_mut().clear();
        }
        stats.fill_row_losses(rank, self.row_losses, self.targets);
        (stats.loss(rank, self.targets), logits)
    }

    fn compute_chunk(
        &self,
        stats: &mut Stats,
        chunk: Range<usize>,
        mut logits: ViewMut<'_>,
        gradients: Option<&mut HeadGradients>,
    ) {
        let LogitRows { rank, vocab, .. } = self.rows;
        let backend = rank.backend();
        let weight = self.weight;
        let (m, k, n) = (chunk.len(), self.hidden, vocab.local);
        let input = self.x.slice(chunk.start * k..chunk.end * k);
        let targets = self.targets.slice(chunk.clone());

        let forward = Gemm { m, n, k, trans_a: false, trans_b: true, accumulate: false };
        backend.gemm(&forward, input, weight, logits.reborrow());
        let Some(gradients) = gradients else {
            self.rows.fill_stats(stats, chunk.start, logits.as_view(), targets);
            return;
        };
        let scale = self.weights.slice(chunk.clone());
        self.rows.differentiate(stats, chunk.start, logits.reborrow(), targets, scale);
        if let Some(dx) = &mut gradients.dx {
            let dx = dx.view_mut().into_slice(chunk.start * k..chunk.end * k);
            let gemm = Gemm { m, n: k, k: n, trans_a: false, trans_b: false, accumulate: false };
            backend.gemm(&gemm, logits.as_view(), weight, dx);
        }
        if let Some(dweight) = &mut gradients.dweight {
            // The first chunk overwrites the gradient, and later chunks accumulate.
            let gemm = weight_gemm(n, k, m, chunk.start > 0);
            backend.gemm(&gemm, logits.as_view(), input, dweight.view_mut());
        }
    }
}

//! Fused linear cross-entropy: projection onto the vocabulary and loss, chunk by chunk of tokens.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{Buffer, DType, Gemm, View, ViewMut};
use crate::layout::{AxisSet, Dims};
use crate::tensor::{InBackward, ParamRef, ParamUse, TapeGradients, Targets, UnitSlice, Value};

use super::LogitChunks;
use super::cross_entropy::{Rows, Stats};

/// Returns the sum of the losses over the targets that are not ignored.
#[track_caller]
pub(super) fn fused_loss<S: Dims>(
    x: &Value,
    weight: &ParamRef,
    axes: AxisSet,
    vocab_axes: AxisSet,
    targets: &Targets<S>,
) -> Value {
    let rank = x.rank();
    let hidden = x.extents()[x.extents().len() - 1].local;
    let tokens = x.len() / hidden;
    let ready = x.compute();
    let values = weight.read(axes);
    let rows =
        Rows { rank, axes: vocab_axes, site: weight.site(), vocab: weight.local_extents()[0] };
    rows.check(targets);
    let degree = rank.degree_of(vocab_axes);
    let chunks = LogitChunks::of(rank, tokens, rows.vocab.global.div_ceil(degree));
    let head = Head {
        x: ready.data.view(),
        values,
        rows,
        targets: targets.ids().view(),
        weights: targets.counted().view(),
        hidden,
    };
    // With a single chunk on a device, backward computes the weight's gradient in place from the logits' gradient.
    let is_deferred = chunks.count() == 1 && rank.allocator().device().is_some();
    let mut gradients = rank.is_recording().then(|| HeadGradients {
        dx: rank.alloc(tokens * hidden),
        dweight: (!is_deferred).then(|| rank.scratch(DType::F32, weight.local_len())),
    });
    let (sum, logits) = head.compute_chunks(chunks, gradients.as_mut());
    let node = gradients.map(|HeadGradients { mut dx, dweight }| {
        let source = ready.node;
        let weight_use = ParamUse::new(weight, axes, InBackward::Ignores);
        let dweight = match dweight {
            Some(sum) => WeightGradient::Summed(sum),
            None => WeightGradient::Deferred { input: ready.data, logits, hidden },
        };
        rank.tape().record(move |gradients, seed| {
            let seed = gradients.number(&seed);
            if seed != 1.0 {
                gradients.rank.backend().scale(dx.view_mut(), seed);
            }
            dweight.finish(&weight_use, gradients, seed);
            if let Some(source) = source {
                gradients.add(&source, Arc::new(dx));
            }
        })
    });
    Value::ready(rank, Vec::new(), sum, node)
}

/// A projection onto the vocabulary with its loss, computed chunk by chunk.
struct Head<'a> {
    x: View<'a>,
    values: UnitSlice<'a>,
    rows: Rows<'a>,
    targets: View<'a>,
    /// 0 for the rows whose target is ignored, else 1.
    weights: View<'a>,
    hidden: usize,
}

/// Gradients of the summed loss, written chunk by chunk.
struct HeadGradients {
    dx: Buffer,
    /// `None` if backward computes it.
    dweight: Option<Buffer>,
}

/// The weight's gradient as forward saves it for backward.
enum WeightGradient {
    /// Accumulated over chunks in f32.
    Summed(Buffer),
    /// The operands of the matmul that computes it: the input and the gradient of all logits.
    Deferred { input: Arc<Buffer>, logits: Buffer, hidden: usize },
}

impl WeightGradient {
    /// Adds `seed` times the gradient to the gradient of the parameter.
    fn finish(self, weight_use: &ParamUse, gradients: &TapeGradients<'_>, seed: f32) {
        let backend = gradients.rank.backend();
        match self {
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
                weight_use.finish(gradients, |dweight, accumulate| {
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

impl Head<'_> {
    /// Computes all chunks. Returns the sum of the losses, and the logits buffer, which holds the logits' gradient of
    /// the last chunk if `gradients` are computed.
    fn compute_chunks(
        self,
        chunks: LogitChunks,
        mut gradients: Option<&mut HeadGradients>,
    ) -> (Buffer, Buffer) {
        let Rows { rank, vocab, .. } = self.rows;
        // In the compute dtype, like the result of every GEMM; the GEMM and the loss accumulate in f32.
        let mut logits = rank.scratch(rank.compute_dtype(), chunks.longest() * vocab.local);
        let mut stats = Stats::new(rank, self.targets.len());
        for chunk in chunks.ranges() {
            let logits = logits.view_mut().into_slice(0..chunk.len() * vocab.local);
            self.compute_chunk(&mut stats, chunk, logits, gradients.as_deref_mut());
        }
        if let (Some(HeadGradients { dweight: Some(dweight), .. }), 0) = (gradients, chunks.count())
        {
            dweight.view_mut().clear();
        }
        (stats.loss(rank, self.targets), logits)
    }

    fn compute_chunk(
        &self,
        stats: &mut Stats,
        chunk: Range<usize>,
        mut logits: ViewMut<'_>,
        gradients: Option<&mut HeadGradients>,
    ) {
        let Rows { rank, vocab, .. } = self.rows;
        let backend = rank.backend();
        let weight = self.values.view();
        let (m, k, n) = (chunk.len(), self.hidden, vocab.local);
        let input = self.x.slice(chunk.start * k..chunk.end * k);
        let targets = self.targets.slice(chunk.clone());

        let forward = Gemm { m, n, k, trans_a: false, trans_b: true, accumulate: false };
        backend.gemm(&forward, input, weight, logits.reborrow());
        let Some(gradients) = gradients else {
            self.rows.fill(stats, chunk.start, logits.as_view(), targets);
            return;
        };
        let scale = self.weights.slice(chunk.clone());
        self.rows.differentiate(stats, chunk.start, logits.reborrow(), targets, scale);
        let dx = gradients.dx.view_mut().into_slice(chunk.start * k..chunk.end * k);
        let input_gemm = Gemm { m, n: k, k: n, trans_a: false, trans_b: false, accumulate: false };
        backend.gemm(&input_gemm, logits.as_view(), weight, dx);
        if let Some(dweight) = &mut gradients.dweight {
            // The first chunk overwrites the gradient, and later chunks accumulate.
            let gemm = weight_gemm(n, k, m, chunk.start > 0);
            backend.gemm(&gemm, logits.as_view(), input, dweight.view_mut());
        }
    }
}

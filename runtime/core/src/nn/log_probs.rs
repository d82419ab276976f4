//! Log-probabilities of targets, chunk by chunk of tokens.

use std::sync::Arc;

use crate::layout::{AxisSet, Dims};
use crate::tensor::{
    AlwaysRecomputed, Arity, Count, Extent, InBackward, Operation, OperationBackward,
    OperationForward, Rank, Targets, Value, begin_function, set_backward_location,
};
use meshwright_backend::{Buffer, DType, Expr, Node, UnaryFunction, View};
use meshwright_comm::Site;

use super::fused_loss::HeadParams;
use super::head_projection::{HeadProjection, ProjectionGradients, WantedGradients};
use super::logit_stats::{LogitRows, Stats};
use super::{HeadOptions, LogitChunks};

/// Returns the log-probability of each target; 0 for ignored ones.
#[track_caller]
pub(super) fn log_probs<S: Dims>(x: &Value, head: HeadParams<'_>, targets: &Targets<S>) -> Value {
    head.check_targets(targets);
    let (hidden, lead) = x.extents().split_last().expect("a stream has features");
    let operation = LogProbsOperation {
        site: head.weight.site().clone(),
        vocab_axes: head.vocab_axes,
        vocab: head.vocab(),
        options: head.options.without_loss(),
        hidden: hidden.local,
        targets: Arc::clone(targets.id_buffer()),
        counted: Arc::clone(targets.counted_targets()),
    };
    let outer = begin_function("LmHead::log_probs");
    let value = head.apply(operation, [x], InBackward::Reads, lead.to_vec());
    set_backward_location(outer);
    value
}

struct LogProbsOperation {
    site: Site,
    /// The axes over which the vocabulary is split.
    vocab_axes: AxisSet,
    /// This rank's range of the vocabulary.
    vocab: Extent,
    options: HeadOptions,
    /// Elements of a row of the input.
    hidden: usize,
    /// Target ids.
    targets: Arc<Buffer>,
    /// 0 for the rows whose target is ignored, else 1.
    counted: Arc<Buffer>,
}

impl LogProbsOperation {
    fn rows<'a>(&'a self, rank: &'a Rank) -> LogitRows<'a> {
        let (axes, vocab, options) = (self.vocab_axes, self.vocab, self.options);
        LogitRows { rank, axes, site: &self.site, vocab, options }
    }

    fn chunks(&self, rank: &Rank) -> LogitChunks {
        let degree = rank.degree_of(self.vocab_axes);
        LogitChunks::for_tokens(rank, self.targets.len(), self.vocab.global.div_ceil(degree))
    }

    fn projection<'a>(&self, rank: &'a Rank, params: &[View<'a>]) -> HeadProjection<'a> {
        HeadProjection::new(rank, params, self.hidden, self.vocab, self.options)
    }
}

impl<P: Arity> Operation<Count<1>, P> for LogProbsOperation {
    type Saved = AlwaysRecomputed<Stats>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, P>) -> (Buffer, Stats) {
        let OperationForward { rank, inputs: [x], params, .. } = forward;
        let (x, k) = (x.compute().data, self.hidden);
        let (head, rows, chunks) =
            (self.projection(rank, params.as_ref()), self.rows(rank), self.chunks(rank));
        let len = chunks.longest() * self.vocab.local;
        let mut logits = rank.alloc_scratch(head.logits_dtype(), len);
        let mut stats = Stats::new(rank, self.targets.len());
        for chunk in chunks.ranges() {
            let mut logits = logits.view_mut().into_slice(0..chunk.len() * self.vocab.local);
            let input = x.view().slice(chunk.start * k..chunk.end * k);
            head.write_logits(input, logits.reborrow());
            let targets = self.targets.view().slice(chunk.clone());
            rows.fill_stats(&mut stats, chunk.start, logits.as_view(), targets);
        }
        let [max, sum_exp, target_logit] = stats.views();
        // (logit - max - log(sum)) * counted
        let nodes = vec![
            Node::Leaf(0),
            Node::Leaf(1),
            Node::Leaf(2),
            Node::Leaf(3),
            Node::Apply(UnaryFunction::Log, 2),
            Node::Sub(0, 1),
            Node::Sub(5, 4),
            Node::Mul(6, 3),
        ];
        let leaves = [target_logit, max, sum_exp, self.counted.view()];
        let mut wide = rank.alloc_scratch(DType::F32, self.targets.len());
        rank.backend().map(&Expr { nodes }, &leaves, wide.view_mut());
        let mut out = rank.alloc_activation(self.targets.len());
        rank.backend().cast(wide.view(), out.view_mut());
        (out, stats)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, P>,
        AlwaysRecomputed(stats): AlwaysRecomputed<Stats>,
    ) {
        let OperationBackward { gradients, inputs: [mut x], params: uses, gradient: dy, .. } =
            backward;
        let (rank, uses, k) = (gradients.rank, uses.as_ref(), self.hidden);
        let input = x.take_saved(rank);
        // The cross-entropy of a row is minus its log-probability.
        let mut wide = rank.alloc_scratch(DType::F32, dy.len());
        rank.backend().cast(dy.view(), wide.view_mut());
        let nodes = vec![Node::Leaf(0), Node::Leaf(1), Node::Mul(0, 1), Node::Scale(2, -1.0)];
        let mut scale = rank.alloc_scratch(DType::F32, dy.len());
        let leaves = [wide.view(), self.counted.view()];
        rank.backend().map(&Expr { nodes }, &leaves, scale.view_mut());

        let values: Vec<_> = uses.iter().map(|param| param.param().values()).collect();
        let params: Vec<_> = values.iter().map(|values| values.view()).collect();
        let (head, rows, chunks) =
            (self.projection(rank, &params), self.rows(rank), self.chunks(rank));
        let len = chunks.longest() * self.vocab.local;
        let mut logits = rank.alloc_scratch(head.logits_dtype(), len);
        let is_wide = head.logits_dtype() != rank.compute_dtype();
        let mut rounded = is_wide.then(|| rank.alloc_scratch(rank.compute_dtype(), len));
        let mut sums =
            ProjectionGradients::new(&head, self.targets.len(), WantedGradients::of(&x, uses));
        for chunk in chunks.ranges() {
            let part = 0..chunk.len() * self.vocab.local;
            let mut logits = logits.view_mut().into_slice(part.clone());
            let input = input.view().slice(chunk.start * k..chunk.end * k);
            head.write_logits(input, logits.reborrow());
            let [targets, scale] =
                [self.targets.view(), scale.view()].map(|of| of.slice(chunk.clone()));
            stats.differentiate(&rows, chunk.start, logits.reborrow(), targets, scale);
            let rounded = rounded.as_mut().map(|rounded| rounded.view_mut().into_slice(part));
            sums.add_logits(&head, chunk.start, input, logits, rounded);
        }
        sums.clear_without_chunks(chunks.count());
        drop(params);
        drop(values);
        sums.finish(gradients, uses, &x);
    }
}

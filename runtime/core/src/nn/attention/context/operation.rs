//! Context-parallel attention as an operation with a gradient.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{
    Arity, Count, Extent, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, Rank, Value, VisibleRows, apply,
};
use meshwright_backend::{AttentionShape, Buffer};
use meshwright_comm::Site;

use super::super::score_operands::{ScoreParams, ScoreSources, ScoreValues};
use super::call::ContextCall;
use super::gather::KeyGather;
use super::local::OutputGradient;
use super::ring::RingAttention;
use super::style::ContextAlgorithm;
use super::ulysses::{ExchangedAttention, UlyssesAttention};

/// Attention over a sequence that is distributed over ranks.
pub(in crate::nn::attention) struct ContextAttention {
    pub site: Site,
    /// The axes of the ranks that share the sequence.
    pub axes: AxisSet,
    /// Sizes of this rank's operands, and the band of positions in the whole sequence.
    pub shape: AttentionShape,
    /// Positions of the whole sequence.
    pub seq: usize,
    /// The positions that each query sees within the band, if samples are padded or hold several documents.
    pub visible: Option<Rc<VisibleRows>>,
    /// Optional operands of the scores of this rank's heads.
    pub scores: ScoreSources,
}

impl ContextAttention {
    /// Computes the attention of `inputs`: queries, keys and values. The parameters belong to the scores, and the
    /// result to `rank`.
    #[track_caller]
    pub fn apply(
        self,
        algorithm: ContextAlgorithm,
        rank: &Rank,
        inputs: [&Value; 3],
        params: ScoreParams<'_>,
        extents: Vec<Extent>,
    ) -> Value {
        match params {
            ScoreParams::None(params) => self.apply_with(algorithm, rank, inputs, params, extents),
            ScoreParams::One(params) => self.apply_with(algorithm, rank, inputs, params, extents),
            ScoreParams::Two(params) => self.apply_with(algorithm, rank, inputs, params, extents),
        }
    }

    #[track_caller]
    fn apply_with<const P: usize>(
        self,
        algorithm: ContextAlgorithm,
        rank: &Rank,
        inputs: [&Value; 3],
        params: [OperationParam<'_>; P],
        extents: Vec<Extent>,
    ) -> Value {
        let path = Arc::clone(self.site.shared_field());
        let operands = |in_backward| Operands::<Count<3>, Count<P>> {
            rank,
            path: &path,
            inputs: inputs.map(|value| OperationInput::new(value, in_backward)),
            params,
            extents,
        };
        match algorithm {
            ContextAlgorithm::Ring => {
                apply(KeysOfAllRanks { attention: self, ring: true }, operands(InBackward::Reads))
            }
            ContextAlgorithm::Gather => {
                apply(KeysOfAllRanks { attention: self, ring: false }, operands(InBackward::Reads))
            }
            ContextAlgorithm::Exchange(size) => {
                let operation = HeadsOfAllRanks { attention: self, size };
                apply(operation, operands(InBackward::Ignores))
            }
        }
    }

    /// Runs `body` with this call on a rank.
    fn with_call<T>(
        &self,
        rank: &Rank,
        scores: &ScoreValues,
        body: impl FnOnce(&ContextCall<'_>) -> T,
    ) -> T {
        body(&ContextCall {
            rank,
            group: &rank.process_group(self.axes),
            site: &self.site,
            shape: self.shape,
            seq: self.seq,
            visible: self.visible.as_deref(),
            scores: scores.operands(),
        })
    }
}

/// Attention of each rank's own queries to the keys of all ranks.
struct KeysOfAllRanks {
    attention: ContextAttention,
    /// True if keys travel around a ring, false if they are gathered.
    ring: bool,
}

impl<P: Arity> Operation<Count<3>, P> for KeysOfAllRanks {
    /// The log-sum-exp of the scores of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<3>, P>) -> (Buffer, [Buffer; 1]) {
        let data = forward.inputs.map(|value| value.compute().data);
        let [q, k, v] = data.each_ref().map(|data| data.view());
        let scores = self.attention.scores.values(forward.rank, forward.params.as_ref());
        self.attention.with_call(forward.rank, &scores, |call| {
            let (out, lse) = if self.ring {
                RingAttention::new(call, 1).forward(q, k, v)
            } else {
                KeyGather::new(call).forward(q, k, v)
            };
            (out, [lse])
        })
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(self, backward: OperationBackward<'_, '_, Count<3>, P>, [lse]: [Arc<Buffer>; 1]) {
        let OperationBackward { gradients, mut inputs, params, output, gradient: dout } = backward;
        let (rank, params) = (gradients.rank, params.as_ref());
        let scores = self.attention.scores.values_in_backward(rank, params);
        let mut of_scores = self.attention.scores.gradients_of(rank, &scores);
        let out = output.expect("attention saves its output");
        let [q, k, v] = inputs.each_mut().map(|input| input.take_saved(rank));
        let of =
            OutputGradient { q: q.view(), out: out.view(), lse: lse.view(), dout: dout.view() };
        let computed = self.attention.with_call(rank, &scores, |call| {
            if self.ring {
                RingAttention::new(call, 1).backward(&of, k.view(), v.view(), of_scores.views())
            } else {
                KeyGather::new(call).backward(&of, k.view(), v.view(), of_scores.views())
            }
        });
        for (input, gradient) in inputs.iter().zip(computed) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
        self.attention.scores.finish_gradients(of_scores, params, gradients);
    }
}

/// Attention after ranks have exchanged positions for heads.
struct HeadsOfAllRanks {
    attention: ContextAttention,
    /// Ranks that exchange.
    size: usize,
}

impl<P: Arity> Operation<Count<3>, P> for HeadsOfAllRanks {
    /// Queries, keys, values, output and log-sum-exps of this rank's heads.
    type Saved = [Arc<Buffer>; 5];

    fn forward(&self, forward: OperationForward<'_, Count<3>, P>) -> (Buffer, [Buffer; 5]) {
        let data = forward.inputs.map(|value| value.compute().data);
        let [q, k, v] = data.each_ref().map(|data| data.view());
        let scores = self.attention.scores.values(forward.rank, forward.params.as_ref());
        self.attention.with_call(forward.rank, &scores, |call| {
            let (own, exchanged) = UlyssesAttention::new(call, self.size).forward(q, k, v);
            let ExchangedAttention { q, k, v, out, lse } = exchanged;
            (own, [q, k, v, out, lse])
        })
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<3>, P>,
        [q, k, v, out, lse]: [Arc<Buffer>; 5],
    ) {
        let OperationBackward { gradients, inputs, params, gradient: dout, .. } = backward;
        let (rank, params) = (gradients.rank, params.as_ref());
        let scores = self.attention.scores.values_in_backward(rank, params);
        // This rank has the gradients of its heads at the positions of all ranks that exchange; the sum over ranks is
        // that of the parameter's gradient.
        let mut of_scores = self.attention.scores.gradients_of(rank, &scores);
        let exchanged = ExchangedAttention { q, k, v, out, lse };
        let computed = self.attention.with_call(rank, &scores, |call| {
            let ulysses = UlyssesAttention::new(call, self.size);
            ulysses.backward(&exchanged, dout.view(), of_scores.views())
        });
        for (input, gradient) in inputs.iter().zip(computed) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
        self.attention.scores.finish_gradients(of_scores, params, gradients);
    }
}

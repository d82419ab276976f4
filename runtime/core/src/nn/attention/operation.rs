//! Attention as an operation with a gradient: the calls of its kernels.

use std::sync::Arc;

use crate::tensor::{
    Arity, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, Value, apply,
};
use meshwright_backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright_backend::{AttentionShape, Buffer, KeyRanges};

use super::extras::Extras;
use super::inputs::AttentionInputs;
use super::score_operands::{ScoreGradients, ScoreOperands, ScoreParams, ScoreSources};

impl AttentionInputs<'_> {
    /// Computes the attention, with optional operands.
    #[track_caller]
    pub(super) fn attend(&self, mut extras: Extras<'_>) -> Value {
        extras.find_documents(self);
        let Extras { ranges, bias, sinks, .. } = extras;
        let (scores, params) = ScoreSources::new(bias, sinks);
        let operation = AttentionOperation { shape: self.shape(), ranges, scores };
        match params {
            ScoreParams::None(params) => self.apply(operation, params),
            ScoreParams::One(params) => self.apply(operation, params),
            ScoreParams::Two(params) => self.apply(operation, params),
        }
    }

    #[track_caller]
    fn apply<const P: usize>(
        &self,
        operation: AttentionOperation,
        params: [OperationParam<'_>; P],
    ) -> Value {
        let (q, v) = (self.queries.extents(), self.values.extents());
        let operands = Operands::<Count<3>, Count<P>> {
            rank: &self.rank,
            path: &self.core.path,
            inputs: [self.queries, &self.keys, &self.values]
                .map(|value| OperationInput::new(value, InBackward::Reads)),
            params,
            extents: vec![q[0], q[1], q[2], v[3]],
        };
        apply(operation, operands)
    }
}

/// Attention whose parameters belong to its scores.
struct AttentionOperation {
    shape: AttentionShape,
    ranges: Option<[Arc<Buffer>; 2]>,
    scores: ScoreSources,
}

impl AttentionOperation {
    fn key_ranges(&self) -> Option<KeyRanges<'_>> {
        let [first, end] = self.ranges.as_ref()?;
        Some(KeyRanges { first: first.view(), end: end.view() })
    }
}

impl<P: Arity> Operation<Count<3>, P> for AttentionOperation {
    /// The log-sum-exp of the scores of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<3>, P>) -> (Buffer, [Buffer; 1]) {
        let rank = forward.rank;
        let [q, k, v] = forward.inputs.map(|value| value.compute().data);
        let AttentionShape { batch, heads, queries, value_dim, .. } = self.shape;
        let mut out = rank.alloc_activation(batch * queries.len * heads * value_dim);
        let mut lse = rank.alloc_statistics(batch * heads * queries.len);
        let scores = self.scores.values(rank, forward.params.as_ref());
        let ScoreOperands { bias, sinks } = scores.operands();
        rank.backend().attention(
            &self.shape,
            AttentionArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: self.key_ranges(),
                bias,
                sinks,
                out: out.view_mut(),
                lse: lse.view_mut(),
            },
        );
        (out, [lse])
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(self, backward: OperationBackward<'_, '_, Count<3>, P>, [lse]: [Arc<Buffer>; 1]) {
        let OperationBackward { gradients, mut inputs, params, output, gradient: dout } = backward;
        let rank = gradients.rank;
        let params = params.as_ref();
        let out = output.expect("attention saves its output");
        let [q, k, v] = inputs.each_mut().map(|input| input.take_saved(rank));
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|data| rank.alloc_activation(data.len()));
        let scores = self.scores.values_in_backward(rank, params);
        let ScoreOperands { bias, sinks } = scores.operands();
        let mut of_scores = self.scores.gradients_of(rank, &scores);
        let ScoreGradients { bias: dbias, sinks: dsinks } = of_scores.views();
        rank.backend().attention_backward(
            &self.shape,
            AttentionBackwardArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: self.key_ranges(),
                bias,
                sinks,
                out: out.view(),
                lse: lse.view(),
                dout: dout.view(),
                accumulate: false,
                dq: dq.view_mut(),
                dk: dk.view_mut(),
                dv: dv.view_mut(),
                dbias,
                dsinks,
            },
        );
        for (input, gradient) in inputs.iter().zip([dq, dk, dv]) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
        self.scores.finish_gradients(of_scores, params, gradients);
    }
}

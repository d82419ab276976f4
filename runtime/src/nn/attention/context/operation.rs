//! Context-parallel attention as an operation with a gradient.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{AttentionShape, Buffer};
use crate::comm::Site;
use crate::layout::AxisSet;
use crate::tensor::{
    Count, DocumentIds, Extent, InBackward, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, Rank, Value, apply,
};

use super::call::ContextCall;
use super::gather::KeyGather;
use super::local::OutputGradient;
use super::ring::Ring;
use super::style::ContextAlgorithm;
use super::ulysses::{ExchangedAttention, Ulysses};

/// Attention over a sequence that is distributed over ranks.
pub(in crate::nn::attention) struct ContextAttention {
    pub site: Site,
    /// The axes of the ranks that share the sequence.
    pub axes: AxisSet,
    /// Sizes of this rank's operands, and the band of positions in the whole sequence.
    pub shape: AttentionShape,
    /// Positions of the whole sequence.
    pub seq: usize,
    /// The documents of the samples, if they are several.
    pub documents: Option<Rc<DocumentIds>>,
}

impl ContextAttention {
    /// Computes the attention of `inputs`: queries, keys and values.
    #[track_caller]
    pub fn apply(
        self,
        algorithm: ContextAlgorithm,
        inputs: [&Value; 3],
        extents: Vec<Extent>,
    ) -> Value {
        let path = Arc::clone(self.site.shared_field());
        let operands = |in_backward| Operands::<Count<3>, Count<0>> {
            rank: inputs[0].rank(),
            path: &path,
            inputs: inputs.map(|value| OperationInput::new(value, in_backward)),
            params: [],
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
    fn on<T>(&self, rank: &Rank, body: impl FnOnce(&ContextCall<'_>) -> T) -> T {
        body(&ContextCall {
            rank,
            group: &rank.process_group(self.axes),
            site: &self.site,
            shape: self.shape,
            seq: self.seq,
            documents: self.documents.as_deref(),
        })
    }
}

/// Attention in which each rank keeps its queries, and reads the keys of all ranks.
struct KeysOfAllRanks {
    attention: ContextAttention,
    /// True if keys travel around a ring, false if they are gathered.
    ring: bool,
}

impl Operation<Count<3>, Count<0>> for KeysOfAllRanks {
    /// The log-sum-exp of the scores of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<3>, Count<0>>) -> (Buffer, [Buffer; 1]) {
        let data = forward.inputs.map(|value| value.compute().data);
        let [q, k, v] = data.each_ref().map(|data| data.view());
        self.attention.on(forward.rank, |call| {
            let (out, lse) = if self.ring {
                Ring::new(call, 1).forward(q, k, v)
            } else {
                KeyGather::new(call).forward(q, k, v)
            };
            (out, [lse])
        })
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<3>, Count<0>>,
        [lse]: [Arc<Buffer>; 1],
    ) {
        let OperationBackward { gradients, mut inputs, output, gradient: dout, .. } = backward;
        let rank = gradients.rank;
        let out = output.expect("attention saves its output");
        let [q, k, v] = inputs.each_mut().map(|input| input.take_saved(rank));
        let of =
            OutputGradient { q: q.view(), out: out.view(), lse: lse.view(), dout: dout.view() };
        let computed = self.attention.on(rank, |call| {
            if self.ring {
                Ring::new(call, 1).backward(&of, k.view(), v.view())
            } else {
                KeyGather::new(call).backward(&of, k.view(), v.view())
            }
        });
        for (input, gradient) in inputs.iter().zip(computed) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
    }
}

/// Attention in which ranks exchange positions for heads.
struct HeadsOfAllRanks {
    attention: ContextAttention,
    /// Ranks that exchange.
    size: usize,
}

impl Operation<Count<3>, Count<0>> for HeadsOfAllRanks {
    /// Queries, keys, values, output and log-sum-exps of this rank's heads.
    type Saved = [Arc<Buffer>; 5];

    fn forward(&self, forward: OperationForward<'_, Count<3>, Count<0>>) -> (Buffer, [Buffer; 5]) {
        let data = forward.inputs.map(|value| value.compute().data);
        let [q, k, v] = data.each_ref().map(|data| data.view());
        self.attention.on(forward.rank, |call| {
            let (own, exchanged) = Ulysses::new(call, self.size).forward(q, k, v);
            let ExchangedAttention { q, k, v, out, lse } = exchanged;
            (own, [q, k, v, out, lse])
        })
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<3>, Count<0>>,
        [q, k, v, out, lse]: [Arc<Buffer>; 5],
    ) {
        let OperationBackward { gradients, inputs, gradient: dout, .. } = backward;
        let exchanged = ExchangedAttention { q, k, v, out, lse };
        let computed = self.attention.on(gradients.rank, |call| {
            Ulysses::new(call, self.size).backward(&exchanged, dout.view())
        });
        for (input, gradient) in inputs.iter().zip(computed) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
    }
}

//! Attention as an operation with a gradient: the calls of its kernels.

use std::sync::Arc;

use crate::backend::{
    AttentionArgs, AttentionBackwardArgs, AttentionShape, Buffer, KeyRanges, View,
};
use crate::tensor::{
    Arity, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, Rank, Value, apply,
};

use super::extras::Extras;
use super::inputs::AttentionInputs;
use super::score_bias::{BucketOfDistance, Distances, ScoreBias, distance_bias, widened};

impl AttentionInputs<'_> {
    /// Computes the attention, with optional operands.
    #[track_caller]
    pub(super) fn attend(&self, extras: Extras<'_>) -> Value {
        let Extras { ranges, bias, sinks, .. } = extras;
        let (bias, table) = match bias {
            None => (None, None),
            Some(ScoreBias::Constant(values, distances)) => {
                (Some(BiasSource::Constant(values, distances)), None)
            }
            Some(ScoreBias::Learned(table, buckets)) => {
                (Some(BiasSource::Table(buckets)), Some(table))
            }
        };
        let shape = self.shape();
        let operation = AttentionOperation { shape, ranges, bias, has_sinks: sinks.is_some() };
        match (table, sinks) {
            (None, None) => self.apply(operation, []),
            (Some(table), None) => self.apply(operation, [table]),
            (None, Some(sinks)) => self.apply(operation, [sinks]),
            (Some(table), Some(sinks)) => self.apply(operation, [table, sinks]),
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
            rank: self.queries.rank(),
            path: &self.core.path,
            inputs: [self.queries, &self.keys, &self.values]
                .map(|value| OperationInput::new(value, InBackward::Reads)),
            params,
            extents: vec![q[0], q[1], q[2], v[3]],
        };
        apply(operation, operands)
    }
}

/// Attention whose parameters are the table of its bias, if that is learned, and its sinks, if it has any.
struct AttentionOperation {
    shape: AttentionShape,
    ranges: Option<[Arc<Buffer>; 2]>,
    bias: Option<BiasSource>,
    has_sinks: bool,
}

/// Where the bias on scores comes from.
enum BiasSource {
    /// f32 `[heads, distances]`.
    Constant(Arc<Buffer>, Distances),
    /// The first parameter.
    Table(Arc<BucketOfDistance>),
}

/// The optional operands of the kernels.
struct KernelExtras {
    bias: Option<(Arc<Buffer>, Distances)>,
    sinks: Option<Buffer>,
}

impl AttentionOperation {
    /// Computes the optional operands of the kernels from the values of the parameters.
    fn extras(&self, rank: &Rank, params: &[View<'_>]) -> KernelExtras {
        let bias = self.bias.as_ref().map(|bias| match bias {
            BiasSource::Constant(values, distances) => (Arc::clone(values), *distances),
            BiasSource::Table(buckets) => {
                let values = buckets.expand(rank, &widened(rank, params[0]));
                (Arc::new(values), buckets.distances)
            }
        });
        let sinks = params.last().filter(|_| self.has_sinks).map(|sinks| widened(rank, *sinks));
        KernelExtras { bias, sinks }
    }

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
        let mut out = rank.alloc(batch * queries.len * heads * value_dim);
        let mut lse = rank.stats(batch * heads * queries.len);
        let extras = self.extras(rank, forward.params.as_ref());
        rank.backend().attention(
            &self.shape,
            AttentionArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: self.key_ranges(),
                bias: extras
                    .bias
                    .as_ref()
                    .map(|(values, distances)| distance_bias(values, *distances)),
                sinks: extras.sinks.as_ref().map(Buffer::view),
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
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|data| rank.alloc(data.len()));
        let values: Vec<_> = params.iter().map(|param| param.param().values()).collect();
        let views: Vec<_> = values.iter().map(|values| values.view()).collect();
        let extras = self.extras(rank, &views);
        let table = match &self.bias {
            Some(BiasSource::Table(buckets)) => Some(buckets),
            _ => None,
        };
        let bias = extras.bias.as_ref();
        let mut dbias =
            bias.filter(|_| table.is_some()).map(|(values, _)| rank.stats(values.len()));
        let mut dsinks = extras.sinks.as_ref().map(|sinks| rank.stats(sinks.len()));
        rank.backend().attention_backward(
            &self.shape,
            AttentionBackwardArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: self.key_ranges(),
                bias: bias.map(|(values, distances)| distance_bias(values, *distances)),
                sinks: extras.sinks.as_ref().map(Buffer::view),
                out: out.view(),
                lse: lse.view(),
                dout: dout.view(),
                accumulate: false,
                dq: dq.view_mut(),
                dk: dk.view_mut(),
                dv: dv.view_mut(),
                dbias: dbias.as_mut().map(Buffer::view_mut),
                dsinks: dsinks.as_mut().map(Buffer::view_mut),
            },
        );
        drop(values);
        for (input, gradient) in inputs.iter().zip([dq, dk, dv]) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
        if let (Some(buckets), Some(dbias)) = (table, dbias) {
            params[0].finish(gradients, |dtable, accumulate| {
                buckets.add_table_gradient(gradients.rank, &dbias, dtable, accumulate);
            });
        }
        if let (Some(param), Some(dsinks)) = (params.last(), dsinks) {
            param.finish_with(gradients, &dsinks);
        }
    }
}

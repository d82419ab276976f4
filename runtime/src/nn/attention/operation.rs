//! Attention as an operation with a gradient: its checks, and the calls of its kernels.

use std::panic::Location;
use std::sync::Arc;

use crate::backend::{
    AttentionArgs, AttentionBackwardArgs, AttentionShape, Band, Buffer, KeyRanges, SequenceLayout,
    View,
};
use crate::comm::Site;
use crate::layout::{DimInfo, Dims, Entry};
use crate::tensor::{
    Arity, Count, Extent, InBackward, Operand, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, OperationParam, Rank, Value, apply, enter_region,
};

use super::extras::Extras;
use super::options::LayerOptions;
use super::score_bias::{BucketOfDistance, Distances, ScoreBias, distance_bias};

/// What an attention knows when it is built, besides its types.
pub struct AttentionCore {
    /// The field.
    pub(super) path: Arc<str>,
    pub(super) is_causal: bool,
    pub(super) options: LayerOptions,
}

/// Queries, keys and values of one application, inside of the region of the query heads.
pub struct AttentionInputs<'a> {
    pub(super) core: &'a AttentionCore,
    pub(super) queries: &'a Value,
    pub(super) keys: Value,
    values: Value,
    /// The sequence dims of queries and of keys.
    sequences: [DimInfo; 2],
}

impl<'a> AttentionInputs<'a> {
    /// Enters keys and values by `entry`, and checks that all fit together.
    #[track_caller]
    pub(super) fn new<Q: Operand, K: Operand, V: Operand>(
        core: &'a AttentionCore,
        q: &'a Q,
        k: &K,
        v: &V,
        entry: Entry,
    ) -> AttentionInputs<'a> {
        let queries = q.operand().value();
        let site = Site::new(Arc::clone(&core.path)).at(Location::caller());
        let [keys, values] = [k.operand().value(), v.operand().value()];
        let [keys, values] = [keys, values].map(|value| enter_region(value, entry, &site));
        let sequences = [Q::Shape::DIMS[1], K::Shape::DIMS[1]];
        let inputs = AttentionInputs { core, queries, keys, values, sequences };
        inputs.check();
        inputs
    }

    /// Checks that queries, keys and values have the same samples, that keys and values have the same positions and heads, and
    /// that this rank has the key-value head of each query head.
    ///
    /// # Panics
    /// If a size of one operand differs, or a query head has no key-value head.
    #[track_caller]
    fn check(&self) {
        let path = &self.core.path;
        let (q, k, v) = (self.queries.extents(), self.keys.extents(), self.values.extents());
        let is_cross = self.is_cross();
        for (name, value) in [("keys", &self.keys), ("values", &self.values)] {
            self.queries.rank().check_same(value.rank());
            let other = value.extents();
            let positions = if is_cross { k[1] } else { q[1] };
            assert!(
                q[0] == other[0] && positions == other[1],
                "`{path}`: the {} have a batch of {} and {} positions, but the {name} have {} and {}",
                if is_cross { "queries and keys" } else { "queries" },
                q[0].local,
                positions.local,
                other[0].local,
                other[1].local
            );
        }
        assert!(
            k[2] == v[2] && q[3] == k[3],
            "`{path}`: queries, keys and values have heads of different number or size: {} of {}, {} of {}, {} of {}",
            q[2].global,
            q[3].global,
            k[2].global,
            k[3].global,
            v[2].global,
            v[3].global
        );
        let (heads, kv_heads) = (q[2], k[2]);
        assert!(
            has_key_value_heads(heads, kv_heads),
            "`{path}`: {} query heads and {} key-value heads are split so that this rank has query heads {}..{} and \
             key-value heads {}..{}, which do not match: both numbers must be divisible by the degree of the axis",
            heads.global,
            kv_heads.global,
            heads.offset,
            heads.offset + heads.local,
            kv_heads.offset,
            kv_heads.offset + kv_heads.local
        );
        if let Some(window) = self.core.options.window {
            assert!(
                !is_cross,
                "`{path}`: a window of {window} positions is that of one sequence, but the keys are along {}, and the queries \
                 along {}; give this field options without a window by `Sizes::with_attention`",
                self.sequences[1].name, self.sequences[0].name
            );
        }
    }

    /// Returns true if the keys have another sequence than the queries.
    fn is_cross(&self) -> bool {
        !self.sequences[0].is(&self.sequences[1])
    }

    /// Returns the sizes of the kernels.
    fn shape(&self) -> AttentionShape {
        let (q, k, v) = (self.queries.extents(), self.keys.extents(), self.values.extents());
        let LayerOptions { window, soft_cap, scale } = self.core.options;
        let (heads, kv_heads) = (q[2], k[2]);
        let group = heads.global / kv_heads.global;
        let positions = q[1].local.max(k[1].local);
        let before = window.filter(|window| *window < positions).map(|window| window - 1);
        let after = if self.core.is_causal { Some(0) } else { before };
        let band = Band { offset: 0, before, after };
        let usual = AttentionShape::new(
            q[0].local,
            q[1].local,
            [heads.local, kv_heads.local, q[3].local],
            band,
        );
        AttentionShape {
            keys: SequenceLayout::dense(k[1].local),
            group,
            first_head: heads.offset - kv_heads.offset * group,
            value_dim: v[3].local,
            scale: scale.unwrap_or(usual.scale),
            soft_cap,
            ..usual
        }
    }
}

/// Returns true if the key-value heads of a rank are those of its query heads, or include them.
fn has_key_value_heads(heads: Extent, kv_heads: Extent) -> bool {
    if !heads.global.is_multiple_of(kv_heads.global) {
        return false;
    }
    let group = heads.global / kv_heads.global;
    let end = (kv_heads.offset + kv_heads.local) * group;
    kv_heads.offset * group <= heads.offset && heads.offset + heads.local <= end
}

impl AttentionCore {
    /// Computes the attention of `inputs`, with optional operands.
    #[track_caller]
    pub(super) fn attend(&self, inputs: &AttentionInputs<'_>, extras: Extras<'_>) -> Value {
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
        let shape = inputs.shape();
        let operation = AttentionOperation { shape, ranges, bias, has_sinks: sinks.is_some() };
        match (table, sinks) {
            (None, None) => inputs.apply(operation, []),
            (Some(table), None) => inputs.apply(operation, [table]),
            (None, Some(sinks)) => inputs.apply(operation, [sinks]),
            (Some(table), Some(sinks)) => inputs.apply(operation, [table, sinks]),
        }
    }
}

impl AttentionInputs<'_> {
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
        let widen = |param: View<'_>| {
            let mut wide = rank.stats(param.len());
            rank.backend().cast(param, wide.view_mut());
            wide
        };
        let bias = self.bias.as_ref().map(|bias| match bias {
            BiasSource::Constant(values, distances) => (Arc::clone(values), *distances),
            BiasSource::Table(buckets) => {
                let values = buckets.expand(rank, &widen(params[0]));
                (Arc::new(values), buckets.distances)
            }
        });
        let sinks = params.last().filter(|_| self.has_sinks).map(|sinks| widen(*sinks));
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

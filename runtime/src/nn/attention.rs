//! Causal grouped-query attention that never stores a sequence-by-sequence matrix.

mod context;

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::{AttentionArgs, AttentionBackwardArgs, AttentionShape, Band, Buffer};
use crate::layout::{Axis, Dim, Dims, Local, OnEveryRank, Seal, Split, Whole};
use crate::tensor::{
    Count, Extent, InBackward, Operand, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, Value, apply,
};

use super::{Build, Builder, Layer};

/// `softmax(q · kᵀ / sqrt(D), causal) · v` for each head; query head `h` reads key-value head `h * K / H`
/// (grouped-query attention, Ainslie et al., 2023). Computed tile by tile with an online softmax (Dao, 2023).
///
/// The input is `(q, k, v)` with heads `H` and `K` both whole, or both split over one axis. The sequence must be whole on each
/// rank.
pub struct Attention<H, K, D> {
    path: Arc<str>,
    dims: PhantomData<(H, K, D)>,
}

/// Matching queries, keys and values: `[batch, sequence, H, D]` and twice `[batch, sequence, K, D]`, with both `H` and
/// `K` whole, or both split over one axis.
#[diagnostic::on_unimplemented(
    message = "attention over `{H}` and `{K}` cannot take `{Self}`",
    label = "not queries, keys and values",
    note = "it takes the tuple `(queries, keys, values)`, each a tensor shaped `(Batch, Seq, heads, head dim)`"
)]
pub trait QueriesKeysValues<H, K, D> {
    /// The result, shaped like the queries.
    type Out;
    #[doc(hidden)]
    #[track_caller]
    fn attend(&self, path: &str) -> Self::Out;
}

/// Shapes of queries: `(batch, sequence, H, D)`, the heads whole or split.
#[diagnostic::on_unimplemented(
    message = "the queries are shaped `{Self}`, but this attention has heads `{H}` of `{D}`",
    label = "mismatched queries (the first operand)",
    note = "queries are shaped `(Batch, Seq, {H}, {D})`, with `{H}` whole, or split by `#[sharded(tp = \"col\")]` on their projection",
    note = "the tuple is `(queries, keys, values)`, in this order"
)]
pub trait QueriesOf<H, D>: Dims {
    /// The shape itself, which is also the shape of the result.
    type Shape: Dims;
    /// The shape of keys and values for these queries: with heads `K`, split like the query heads.
    type Keys<K: Whole>;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B: Dim, S: Local, H: Whole, D: Whole> QueriesOf<H, D> for (B, S, H, D) {
    type Shape = (B, S, H, D);
    type Keys<K: Whole> = (B, S, K, D);
    const SEAL: Seal = Seal::new();
}

impl<B: Dim, S: Local, H: Whole, D: Whole, A: Axis> QueriesOf<H, D> for (B, S, Split<H, A>, D) {
    type Shape = (B, S, Split<H, A>, D);
    type Keys<K: Whole> = (B, S, Split<K, A>, D);
    const SEAL: Seal = Seal::new();
}

/// Shapes of keys that match the queries, and values shaped `Values`.
#[diagnostic::on_unimplemented(
    message = "the keys are shaped `{Self}`, but these queries need keys shaped `{Expected}`",
    label = "mismatched keys (the second operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none"
)]
pub trait KeysShaped<Expected, Values>: Dims {}

impl<S: Dims, Values: ValuesShaped<S>> KeysShaped<S, Values> for S {}

/// Shapes of values that match the queries and keys.
#[diagnostic::on_unimplemented(
    message = "the values are shaped `{Self}`, but these queries and keys need values shaped `{Expected}`",
    label = "mismatched values (the third operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none"
)]
pub trait ValuesShaped<Expected> {}

impl<S> ValuesShaped<S> for S {}

impl<Q, Keys, Values, H: Whole, K: Whole, D: Whole> QueriesKeysValues<H, K, D> for (Q, Keys, Values)
where
    Q: Operand<Shape: QueriesOf<H, D>>,
    Values: Operand,
    Keys: Operand<Shape: KeysShaped<<Q::Shape as QueriesOf<H, D>>::Keys<K>, Values::Shape>>,
{
    type Out = Tensor<<Q::Shape as QueriesOf<H, D>>::Shape>;

    #[track_caller]
    fn attend(&self, path: &str) -> Self::Out {
        let (q, k, v) = self;
        let (q, k, v) = (q.operand(), k.operand(), v.operand());
        Tensor::wrap(attend(path, q.value(), k.value(), v.value()))
    }
}

impl<H, K, D> Attention<H, K, D> {
    /// Computes the attention of `(q, k, v)`, each shaped `[batch, sequence, heads, D]`; the result is shaped like `q`.
    #[track_caller]
    pub fn forward<T: QueriesKeysValues<H, K, D>>(&self, qkv: &T) -> T::Out {
        qkv.attend(&self.path)
    }
}

impl<H: Whole, K: Whole, D: Whole> Build for Attention<H, K, D>
where
    H::Home: OnEveryRank<H>,
    K::Home: OnEveryRank<K>,
    D::Home: OnEveryRank<D>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let (heads, kv_heads) = (builder.size::<H>(), builder.size::<K>());
        if heads % kv_heads != 0 {
            builder.problem(format_args!(
                "{} = {heads} is not divisible by {} = {kv_heads}: each key-value head serves as many query heads",
                H::DECLARED_NAME,
                K::DECLARED_NAME
            ));
        }
        builder.note_attention(heads, builder.size::<D>());
        Attention { path: builder.site().field().into(), dims: PhantomData }
    }
}

impl<T: QueriesKeysValues<H, K, D>, H, K, D> Layer<T> for Attention<H, K, D> {
    type Out = T::Out;

    #[track_caller]
    fn forward(&self, qkv: &T) -> T::Out {
        Attention::forward(self, qkv)
    }
}

/// Checks that queries, keys and values have the same samples and positions, and that each query head is on the rank of
/// its key-value head.
///
/// # Panics
/// If a size of one operand differs, or the query heads of a rank do not match its key-value heads.
#[track_caller]
fn check_operands(path: &str, q: &Value, k: &Value, v: &Value) {
    for (name, other) in [("keys", k), ("values", v)] {
        q.rank().check_same(other.rank());
        let (own, other) = (&q.extents()[..2], &other.extents()[..2]);
        assert!(
            own == other,
            "`{path}`: the queries have a batch of {} and {} positions, but the {name} have {} and {}",
            own[0].local,
            own[1].local,
            other[0].local,
            other[1].local
        );
    }
    assert!(
        k.extents() == v.extents() && q.extents()[3] == k.extents()[3],
        "`{path}`: queries, keys and values have heads of different number or size: {} of {}, {} of {}, {} of {}",
        q.extents()[2].global,
        q.extents()[3].global,
        k.extents()[2].global,
        k.extents()[3].global,
        v.extents()[2].global,
        v.extents()[3].global
    );
    let (heads, kv_heads) = (q.extents()[2], k.extents()[2]);
    let matches =
        |of: fn(&Extent) -> usize| of(&heads) * kv_heads.global == of(&kv_heads) * heads.global;
    assert!(
        matches(|extent| extent.local) && matches(|extent| extent.offset),
        "`{path}`: {} query heads and {} key-value heads are split so that this rank has query heads {}..{} and \
         key-value heads {}..{}, which do not match: both numbers must be divisible by the degree of the axis",
        heads.global,
        kv_heads.global,
        heads.offset,
        heads.offset + heads.local,
        kv_heads.offset,
        kv_heads.offset + kv_heads.local
    );
}

#[track_caller]
fn attend(path: &str, q: &Value, k: &Value, v: &Value) -> Value {
    check_operands(path, q, k, v);
    let [batch, seq, heads, head_dim] = [0, 1, 2, 3].map(|dim| q.extents()[dim].local);
    let kv_heads = k.extents()[2].local;
    let shape = AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], Band::CAUSAL);
    let operands = Operands::<Count<3>, Count<0>> {
        rank: q.rank(),
        path,
        inputs: [q, k, v].map(|value| OperationInput::new(value, InBackward::Reads)),
        params: [],
        extents: q.extents().to_vec(),
    };
    apply(AttentionOperation { shape }, operands)
}

struct AttentionOperation {
    shape: AttentionShape,
}

impl Operation<Count<3>, Count<0>> for AttentionOperation {
    /// The log-sum-exp of the scores of each row.
    type Saved = [Arc<Buffer>; 1];

    fn forward(&self, forward: OperationForward<'_, Count<3>, Count<0>>) -> (Buffer, [Buffer; 1]) {
        let rank = forward.rank;
        let [q, k, v] = forward.inputs.map(|value| value.compute().data);
        let AttentionShape { batch, heads, queries, .. } = self.shape;
        let mut out = rank.alloc(q.len());
        let mut lse = rank.stats(batch * heads * queries.len);
        rank.backend().attention(
            &self.shape,
            AttentionArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: None,
                bias: None,
                sinks: None,
                out: out.view_mut(),
                lse: lse.view_mut(),
            },
        );
        (out, [lse])
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
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|data| rank.alloc(data.len()));
        rank.backend().attention_backward(
            &self.shape,
            AttentionBackwardArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: None,
                bias: None,
                sinks: None,
                out: out.view(),
                lse: lse.view(),
                dout: dout.view(),
                accumulate: false,
                dq: dq.view_mut(),
                dk: dk.view_mut(),
                dv: dv.view_mut(),
                dbias: None,
                dsinks: None,
            },
        );
        for (input, gradient) in inputs.iter().zip([dq, dk, dv]) {
            input.add_gradient(gradients, Arc::new(gradient));
        }
    }
}

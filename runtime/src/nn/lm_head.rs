//! The head of a language model: projection onto the vocabulary, fused with the loss so that the logits of a whole
//! batch never exist at once.

use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use crate::backend::{Buffer, DType, Gemm, View, ViewMut};
use crate::layout::{
    Axis, AxisSet, Dims, Ends, Enter, Entry, ModelAxis, OnEveryRank, Seal, Split, Whole, With,
};
use crate::tensor::{
    Contraction, InBackward, Init, Loss, Operand, Param, ParamRef, ParamUse, Reads, Stretch,
    Targets, Tensor, Value, check_sizes, contract, enter, gradient_axes,
};

use super::cross_entropy::{Rows, Stats};
use super::{Build, Builder, Plain, Shard, VocabSplit};

/// Logits of one chunk of tokens hold at most this many elements (or 64 tokens' worth).
const CHUNK: usize = 1 << 22;

/// [`CHUNK`] on a device, whose products are fast only when they are large: 512 MiB of logits.
const DEVICE_CHUNK: usize = 1 << 27;

/// Projects the last dim `H` onto vocabulary `V`; its weight is shaped `(V, H)`, as that of an
/// [`Embedding`](super::Embedding), so the two can be tied.
///
/// `#[sharded(tp = "vocab")]` splits the vocabulary; a sequence-parallel stream is gathered on the way in.
pub struct LmHead<H, V, Style = Plain> {
    weight: ParamRef,
    kind: PhantomData<(H, V, Style)>,
}

/// Shapes that a head from `H` onto `V` in style `Style` takes.
#[diagnostic::on_unimplemented(
    message = "a head from `{H}` onto `{V}` cannot take an activation shaped `{Self}`",
    label = "does not end in a whole `{H}`, or its lead dims are split",
    note = "a plain head takes a stream that is whole; over a sequence-parallel stream make it `#[sharded(tp = \"vocab\")]`",
    note = "an activation that ends in a split dim must be reduced by a row-parallel layer first"
)]
pub trait HeadInput<H, V, Style>: Dims {
    /// Dims of the targets.
    type Lead: Dims;
    /// Dims of the logits.
    type Logits: Dims;
    /// How the activation comes into the region.
    const ENTRY: Entry;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The axes over which the vocabulary is split.
    const VOCAB_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Shapes of targets that belong to an activation with lead dims `Lead`: the same.
#[diagnostic::on_unimplemented(
    message = "a head over an activation with lead dims `{Lead}` cannot take targets shaped `{Self}`",
    label = "the targets have other dims, or are split differently",
    note = "over a sequence-parallel stream make the head `#[sharded(tp = \"vocab\")]`: it gathers the stream, and takes the targets of the whole sequence"
)]
pub trait TargetsOf<Lead> {}

#[diagnostic::do_not_recommend]
impl<Lead> TargetsOf<Lead> for Lead {}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole, V: Whole> HeadInput<H, V, Plain> for X
where
    X::Lead: Dims + With<V>,
{
    type Lead = X::Lead;
    type Logits = <X::Lead as With<V>>::Out;
    const ENTRY: Entry = Entry::Stay;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::Lead::VARIES, AxisSet::NONE);
    const VOCAB_AXES: AxisSet = AxisSet::NONE;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole, V: Whole, A: Axis> HeadInput<H, V, VocabSplit<A>> for X
where
    X::Lead: Enter<A>,
    <X::Lead as Enter<A>>::Inside: Dims + With<Split<V, A>>,
{
    type Lead = <X::Lead as Enter<A>>::Inside;
    type Logits = <Self::Lead as With<Split<V, A>>>::Out;
    const ENTRY: Entry = <X::Lead as Enter<A>>::ENTRY;
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::Lead::VARIES, Self::Lead::VARIES, A::AXES);
    const VOCAB_AXES: AxisSet = A::AXES;
    const SEAL: Seal = Seal::new();
}

impl<H, V, Style> LmHead<H, V, Style> {
    /// The mean cross-entropy of `x` shaped `[.., H]` for targets shaped `[..]`, projected and differentiated chunk by
    /// chunk.
    ///
    /// While recording, the gradients are computed here already, where the logits are at hand, and handed on by
    /// backward.
    #[track_caller]
    pub fn loss<T: Operand, G>(&self, x: &T, targets: &Targets<G>) -> Loss<G>
    where
        T::Shape: HeadInput<H, V, Style>,
        G: Dims + TargetsOf<<T::Shape as HeadInput<H, V, Style>>::Lead>,
    {
        let site = self.weight.site().clone().at(Location::caller());
        let x = enter(x.operand().value(), T::Shape::ENTRY, &site);
        x.rank().check_same(self.weight.rank());
        x.rank().check_same(targets.rank());
        let lead = &x.extents()[..x.extents().len() - 1];
        check_sizes(
            G::DIMS,
            ("the stream that a head reads", lead),
            ("its targets", targets.local_extents()),
        );
        let (axes, vocab_axes) = (T::Shape::GRADIENT_AXES, T::Shape::VOCAB_AXES);
        let sum = fused_loss(&x, &self.weight, axes, vocab_axes, targets);
        Loss::new(sum, targets.count())
    }

    /// The logits of `x` shaped `[.., H]`: `[.., V]`, split over the vocabulary as the head is.
    #[track_caller]
    pub fn logits<T: Operand>(&self, x: &T) -> Tensor<<T::Shape as HeadInput<H, V, Style>>::Logits>
    where
        T::Shape: HeadInput<H, V, Style>,
    {
        let how = Contraction {
            reads: Reads::Last(1),
            entry: T::Shape::ENTRY,
            gradient_axes: T::Shape::GRADIENT_AXES,
            leaves: None,
        };
        let site = self.weight.site().clone().at(Location::caller());
        Tensor::wrap(contract(x.operand().value(), &self.weight, how, &site))
    }
}

impl<H: Whole, V: Whole> Build for LmHead<H, V, Plain>
where
    H::Home: OnEveryRank<H>,
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        LmHead::new::<(V, H)>(builder)
    }
}

impl<H: Whole, V: Whole, A: ModelAxis> Build for LmHead<H, V, VocabSplit<A>>
where
    H::Home: OnEveryRank<H>,
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        LmHead::new::<(Split<V, A>, H)>(builder)
    }
}

impl<H, V, Style> LmHead<H, V, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.table("weight", Init::Normal(std));
        builder.note_product(weight.handle());
        LmHead { weight: weight.handle().clone(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<H, V, A> Shard<VocabSplit<A>> for LmHead<H, V> {
    type Sharded = LmHead<H, V, VocabSplit<A>>;
}

/// The sum of the losses of the targets that count.
#[track_caller]
fn fused_loss<S: Dims>(
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
    let chunks = Chunks {
        x: ready.data.view(),
        values,
        rows,
        targets: targets.ids().view(),
        weights: targets.counted().view(),
        hidden,
    };
    let mut shares = rank.is_recording().then(|| Shares {
        dx: rank.alloc(tokens * hidden),
        dweight: rank.scratch(DType::F32, weight.local_len()),
    });
    let sum = chunks.run(shares.as_mut());
    let node = shares.map(|mut shares| {
        let source = ready.node;
        let weight_use = ParamUse::new(weight, axes, InBackward::Ignores);
        rank.tape().record(move |gradients, seed| {
            let seed = gradients.number(&seed);
            if seed != 1.0 {
                gradients.rank.backend().scale(shares.dx.view_mut(), seed);
                gradients.rank.backend().scale(shares.dweight.view_mut(), seed);
            }
            weight_use.finish_with(gradients, &shares.dweight);
            if let Some(source) = source {
                gradients.add(&source, Arc::new(shares.dx));
            }
        })
    });
    Value::ready(rank, Vec::new(), sum, node)
}

struct Chunks<'a> {
    x: View<'a>,
    values: Stretch<'a>,
    rows: Rows<'a>,
    targets: View<'a>,
    /// 1 for the rows whose targets count, else 0.
    weights: View<'a>,
    hidden: usize,
}

/// Gradients of a sum of losses.
struct Shares {
    dx: Buffer,
    dweight: Buffer,
}

impl Chunks<'_> {
    fn run(&self, mut shares: Option<&mut Shares>) -> Buffer {
        let Rows { rank, axes, vocab, .. } = self.rows;
        let tokens = self.targets.len();
        // The same on every rank of the vocabulary, whose parts may differ by one.
        let chunk = if rank.meter().device().is_some() { DEVICE_CHUNK } else { CHUNK };
        let per_chunk = (chunk / vocab.global.div_ceil(rank.degree_of(axes))).max(64);
        let len = per_chunk.min(tokens) * vocab.local;
        // Logits are f32; what is made of them goes back in the compute dtype.
        let mut logits = rank.scratch(DType::F32, len);
        let dtype = rank.compute_dtype();
        let mut narrow = (dtype != DType::F32).then(|| rank.scratch(dtype, len));
        let mut stats = Stats::new(rank, tokens);
        for start in (0..tokens).step_by(per_chunk) {
            let chunk = start..tokens.min(start + per_chunk);
            let len = chunk.len() * vocab.local;
            let logits = logits.view_mut().into_slice(0..len);
            let narrow = narrow.as_mut().map(|narrow| narrow.view_mut().into_slice(0..len));
            self.one(&mut stats, chunk, logits, narrow, shares.as_deref_mut());
        }
        if let (Some(shares), 0) = (shares, tokens) {
            shares.dweight.view_mut().clear();
        }
        stats.loss(rank, self.targets)
    }

    fn one(
        &self,
        stats: &mut Stats,
        chunk: Range<usize>,
        mut logits: ViewMut<'_>,
        mut narrow: Option<ViewMut<'_>>,
        shares: Option<&mut Shares>,
    ) {
        let Rows { rank, vocab, .. } = self.rows;
        let backend = rank.backend();
        let weight = self.values.view();
        let (m, k, n) = (chunk.len(), self.hidden, vocab.local);
        let input = self.x.slice(chunk.start * k..chunk.end * k);
        let targets = self.targets.slice(chunk.clone());

        let forward = Gemm { m, n, k, trans_a: false, trans_b: true, accumulate: false };
        backend.gemm(&forward, input, weight, logits.reborrow());
        self.rows.fill(stats, chunk.start, logits.as_view(), targets);
        if let Some(shares) = shares {
            let (weights, first) = (self.weights.slice(chunk.clone()), chunk.start);
            let to = narrow.as_mut().map(ViewMut::reborrow);
            stats.differentiate(rank, vocab, first, logits.reborrow(), to, targets, weights);
            let gradient = narrow.as_ref().map_or(logits.as_view(), ViewMut::as_view);
            let dx = shares.dx.view_mut().into_slice(chunk.start * k..chunk.end * k);
            let input_product =
                Gemm { m, n: k, k: n, trans_a: false, trans_b: false, accumulate: false };
            backend.gemm(&input_product, gradient, weight, dx);
            // The first chunk writes what the others add to.
            let accumulate = first > 0;
            let weight_product =
                Gemm { m: n, n: k, k: m, trans_a: true, trans_b: false, accumulate };
            backend.gemm(&weight_product, gradient, input, shares.dweight.view_mut());
        }
    }
}

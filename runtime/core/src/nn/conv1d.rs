//! Convolution along a whole sequence, as a copy of what each output reads and a matmul.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::layout::{
    Axis, AxisId, AxisSet, Dims, Ends, Entry, LocalFeature, ModelAxis, Seal, Split, Taps, Whole,
    WholeFeature, WholeSequenceLast, With,
};
use crate::tensor::{
    AlwaysRecomputed, Contraction, Count, Extent, InBackward, Init, Operand, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, Param, ParamRef, Reads, Tensor, Value,
    apply, contract, enter_region,
};
use meshwright_backend::{Buffer, UnfoldShape};

use super::chain::stage_layers;
use super::debug::write_layer;
use super::{Build, Builder, Col, ColumnInput, Layer, Plain, PlainInput, Row, RowInput, Shard};

/// A convolution along a whole sequence, from the last dim `I` to `O` (one dim or a pair), as `nn.Conv1d` of PyTorch:
/// output `t` reads the `TAPS` positions from `t * STRIDE - PADDING` on, with zeros beyond the ends.
///
/// Shape: `[.., sequence, I] -> [.., shorter sequence, O]`; `weight[I, TAPS, O]`, PyTorch's `[O, I, TAPS]` as a
/// transposed matrix.
///
/// The output has `floor((n + 2 * PADDING - TAPS) / STRIDE) + 1` positions, in a dim of the same name: an operation
/// that combines it with a tensor of another length is refused with both sizes. A bias is a field of its own,
/// `Bias<O>`. `#[sharded(tp = "col")]` and `"row"` split the layer as they split a `Linear`. Rows hold one document
/// each.
pub struct Conv1d<
    I,
    O,
    const TAPS: usize,
    const STRIDE: usize = 1,
    const PADDING: usize = 0,
    Style = Plain,
> {
    weight: ParamRef,
    kind: PhantomData<(I, O, Style)>,
}

/// Shapes of activations for a convolution from `I` to `O` in `Style`: they end in a whole sequence and `I`.
#[diagnostic::on_unimplemented(
    message = "a convolution from `{I}` to `{O}` cannot take an activation shaped `{Self}`",
    label = "must end in a sequence that is whole on every rank, and in `{I}`, split as the layer reads it",
    note = "`.gather(Dim)` makes a `Split<Dim, A>` whole; along a sequence that is split or distributed, `CausalConv` \
            convolves each channel",
    note = "a column-parallel layer reads a whole `{I}`, and a row-parallel one a split `{I}`"
)]
pub trait ConvInput<I, O, Taps, Style>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The operation on the input as it enters the region.
    const ENTRY: Entry = Entry::Stay;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The axis over which results are reduced, and the dim along which they are scattered.
    const LEAVES: Option<(AxisId, Option<usize>)> = None;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// The shape of what the outputs read: lead dims, a feature and the taps.
type Unfolded<Lead, F, T> = <Lead as With<(F, T)>>::Out;

#[diagnostic::do_not_recommend]
impl<X: Ends<I>, I: Whole, O, T: Whole> ConvInput<I, O, T, Plain> for X
where
    X::Lead: WholeSequenceLast + With<(I, T)>,
    Unfolded<X::Lead, I, T>: PlainInput<(I, T), O>,
{
    type Out = <Unfolded<X::Lead, I, T> as PlainInput<(I, T), O>>::Out;
    const GRADIENT_AXES: AxisSet =
        <Unfolded<X::Lead, I, T> as PlainInput<(I, T), O>>::GRADIENT_AXES;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<X: Ends<I>, I: Whole, O, T: Whole, A: Axis> ConvInput<I, O, T, Col<A>> for X
where
    X::Lead: WholeSequenceLast + With<(I, T)>,
    Unfolded<X::Lead, I, T>: ColumnInput<(I, T), O, A>,
{
    type Out = <Unfolded<X::Lead, I, T> as ColumnInput<(I, T), O, A>>::Out;
    const ENTRY: Entry = <Unfolded<X::Lead, I, T> as ColumnInput<(I, T), O, A>>::ENTRY;
    const GRADIENT_AXES: AxisSet =
        <Unfolded<X::Lead, I, T> as ColumnInput<(I, T), O, A>>::GRADIENT_AXES;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<X, I: Whole, O, T: Whole, A: Axis, E> ConvInput<I, O, T, Row<A, E>> for X
where
    X: Ends<Split<I, A>>,
    X::Lead: WholeSequenceLast + With<(Split<I, A>, T)>,
    Unfolded<X::Lead, Split<I, A>, T>: RowInput<(I, T), O, A, E>,
{
    type Out = <Unfolded<X::Lead, Split<I, A>, T> as RowInput<(I, T), O, A, E>>::Out;
    const GRADIENT_AXES: AxisSet =
        <Unfolded<X::Lead, Split<I, A>, T> as RowInput<(I, T), O, A, E>>::GRADIENT_AXES;
    const LEAVES: Option<(AxisId, Option<usize>)> =
        Some((A::ID, <Unfolded<X::Lead, Split<I, A>, T> as RowInput<(I, T), O, A, E>>::SCATTER));
    const SEAL: Seal = Seal::new();
}

/// Convolves `x` along its sequence, in the layer's style.
///
/// # Panics
/// If the padded sequence is shorter than the taps, or the rows of `x` hold several documents.
impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, Style, T> Layer<T>
    for Conv1d<I, O, TAPS, STRIDE, PADDING, Style>
where
    I: Whole,
    O: WholeFeature,
    T: Operand<Shape: ConvInput<I, O, Taps<TAPS>, Style>>,
{
    type Out = Tensor<<T::Shape as ConvInput<I, O, Taps<TAPS>, Style>>::Out>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let site = self.weight.site().clone().at_location(Location::caller());
        let value = x.operand().value();
        let (_, rows) = T::Shape::DIMS.split_last().expect("an activation has a feature");
        assert!(
            value.rank().documents_of(rows).is_none(),
            "`{}`: the rows hold several documents, which a convolution along whole rows would mix: compute it from \
             rows \
             of one document each, or keep them apart by a `CausalConv`",
            site.field()
        );
        let entered = enter_region(value, T::Shape::ENTRY, &site);
        let how = Contraction {
            reads: Reads::First(2),
            entry: Entry::Stay,
            gradient_axes: T::Shape::GRADIENT_AXES,
            leaves: T::Shape::LEAVES,
        };
        let unfolded = unfold(&entered, [TAPS, STRIDE, PADDING], self.weight.path());
        Tensor::from_untyped(contract(&unfolded, &self.weight, how, &site))
    }
}

/// Returns the elements that each output reads, `[.., outputs, channels, taps]`.
#[track_caller]
fn unfold(x: &Value, [taps, stride, padding]: [usize; 3], path: &str) -> Value {
    let (channels, rows) = x.extents().split_last().expect("an activation has a feature");
    let (sequence, samples) = rows.split_last().expect("an activation has a sequence");
    let shape = UnfoldShape {
        batch: samples.iter().map(|extent| extent.local).product(),
        len: sequence.local,
        channels: channels.local,
        taps,
        stride,
        padding,
    };
    let Some(outputs) = shape.output_len() else {
        panic!(
            "`{path}` has {taps} taps and a padding of {padding}, but is applied to a sequence of {}: it needs at \
             least {}",
            sequence.local,
            taps - 2 * padding
        )
    };
    let extents = [samples, &[Extent::whole(outputs), *channels, Extent::whole(taps)]].concat();
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    apply(Unfold { shape }, Operands { rank: x.rank(), path: "", inputs, params: [], extents })
}

/// The copies of the elements that the outputs of a convolution read.
struct Unfold {
    shape: UnfoldShape,
}

impl Operation<Count<1>, Count<0>> for Unfold {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let [_, len] = self.shape.elements();
        let mut out = rank.alloc_activation(len);
        rank.backend().unfold(&self.shape, x.compute().data.view(), out.view_mut());
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let [len, _] = self.shape.elements();
        let mut dx = gradients.rank.alloc_activation(len);
        gradients.rank.backend().fold(&self.shape, dy.view(), dx.view_mut());
        x.add_gradient(gradients, Arc::new(dx));
    }
}

impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, Style>
    Conv1d<I, O, TAPS, STRIDE, PADDING, Style>
{
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        const { assert!(TAPS > 0, "a convolution has at least one tap") };
        const { assert!(STRIDE > 0, "the stride of a convolution is at least 1") };
        let init = Init::Normal(builder.sizes().init_std);
        builder.set_size::<Taps<TAPS>>(TAPS);
        let weight: Param<S> = builder.param("weight", init);
        Conv1d { weight: weight.handle().clone(), kind: PhantomData }
    }
}

impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize> Build
    for Conv1d<I, O, TAPS, STRIDE, PADDING, Plain>
where
    I: LocalFeature + Whole,
    O: LocalFeature,
    ((I, Taps<TAPS>), O): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Conv1d::new::<((I, Taps<TAPS>), O)>(builder)
    }
}

impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, A: ModelAxis> Build
    for Conv1d<I, O, TAPS, STRIDE, PADDING, Col<A>>
where
    I: LocalFeature + Whole,
    O: LocalFeature,
    ((I, Taps<TAPS>), O::Split<A>): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Conv1d::new::<((I, Taps<TAPS>), O::Split<A>)>(builder)
    }
}

impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, A: ModelAxis, E> Build
    for Conv1d<I, O, TAPS, STRIDE, PADDING, Row<A, E>>
where
    I: LocalFeature + Whole,
    O: LocalFeature,
    ((Split<I, A>, Taps<TAPS>), O): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Conv1d::new::<((Split<I, A>, Taps<TAPS>), O)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, A> Shard<Col<A>>
    for Conv1d<I, O, TAPS, STRIDE, PADDING>
{
    type Sharded = Conv1d<I, O, TAPS, STRIDE, PADDING, Col<A>>;
}

#[diagnostic::do_not_recommend]
impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, A, E> Shard<Row<A, E>>
    for Conv1d<I, O, TAPS, STRIDE, PADDING>
{
    type Sharded = Conv1d<I, O, TAPS, STRIDE, PADDING, Row<A, E>>;
}

stage_layers! {
    [I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, Style]
        Conv1d<I, O, TAPS, STRIDE, PADDING, Style>;
}

impl<I, O, const TAPS: usize, const STRIDE: usize, const PADDING: usize, Style> std::fmt::Debug
    for Conv1d<I, O, TAPS, STRIDE, PADDING, Style>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_layer(f, "Conv1d", &[&self.weight])
    }
}

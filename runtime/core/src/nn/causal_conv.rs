//! Depthwise causal convolution along a sequence that is whole, split, or distributed.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::layout::{
    AxisSet, Dims, Ends, Feature, LocalFeature, ModelAxis, Seal, SequenceLast, Taps, WholeFeature,
    refuse_routed,
};
use crate::tensor::{
    Count, DocumentIds, Extent, Halo, HaloSide, InBackward, Init, Operand, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, OperationParam, Param, ParamRef, Rank,
    Tensor, apply, check_sizes, gradient_axes,
};
use meshwright_backend::ops::convolution::{CausalConvArgs, CausalConvWeightGradArgs, Neighbors};
use meshwright_backend::{Buffer, CausalConvShape, LeafGrad, PositionRange};

use super::bias::SplitsFeature;
use super::chain::stage_layers;
use super::debug::write_layer;
use super::positions::part_of_rows;
use super::{Build, Builder, Col, Layer, Plain, Shard};

/// A depthwise causal convolution: each channel of the last dim (or pair of dims) `F` is a weighted sum of its values
/// at the position and at the `TAPS - 1` positions before it, with zeros before the first one, as the short
/// convolutions of Hyena (Poli et al., 2023) and Mamba (Gu and Dao, 2023).
///
/// Shape: `[.., sequence, F] -> [.., sequence, F]`; `weight[F, TAPS]`, whose last tap is that of the position itself.
///
/// The sequence is whole, split over `tp`, declared `@ cp`, or both: ranks exchange `TAPS - 1` positions before each
/// range that they hold, and in backward as many behind it. `#[sharded(tp = "col")]` splits the channels instead.
/// Documents in the rows are kept apart. A bias is a field of its own, `Bias<F>`.
pub struct CausalConv<F, const TAPS: usize, Style = Plain> {
    weight: ParamRef,
    kind: PhantomData<(F, Style)>,
}

/// Shapes of activations for a causal convolution of `F` in `Style`: they end in a sequence and `F`.
#[diagnostic::on_unimplemented(
    message = "a causal convolution of `{F}` cannot take an activation shaped `{Self}`",
    label = "must end in a sequence and in `{F}`, split as the layer is",
    note = "the sequence is whole, `Split<Seq, Tp>`, or declared `Seq @ cp`; the data axes distribute samples",
    note = "if the activation is split along `{F}`, split the layer, too: `#[sharded(tp = \"col\")]`"
)]
pub trait CausalConvInput<F, Style>: Dims {
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X, F, Style: SplitsFeature<F>> CausalConvInput<F, Style> for X
where
    X: Ends<Style::Own>,
    X::Lead: SequenceLast,
{
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::VARIES, Style::Own::VARIES);
    const SEAL: Seal = Seal::new();
}

/// Convolves `x` along its sequence.
///
/// # Panics On all ranks, if several ranks share the sequence and `TAPS - 1` is more than the shortest range of
/// positions that one of them holds.
impl<F, const TAPS: usize, Style, S, T> Layer<T> for CausalConv<F, TAPS, Style>
where
    F: WholeFeature,
    S: CausalConvInput<F, Style>,
    T: Operand<Shape = S>,
{
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        const { refuse_routed::<S>() };
        let value = x.operand().value();
        let (rank, extents) = (value.rank(), value.extents());
        let site = self.weight.site().clone().at_location(Location::caller());
        let (rows, features) = extents.split_at(extents.len() - F::DIMS.len());
        let (infos, sequence) = (&S::DIMS[..rows.len()], rows.len() - 1);
        let name = format!("what `{}` reads", self.weight.path());
        let (read_dims, read) =
            (&self.weight.dims()[..features.len()], &self.weight.local_extents()[..features.len()]);
        check_sizes(read_dims, (&name, read), ("its input", features));
        let halo = Halo::new(rank, (S::DIMS, extents), sequence, TAPS - 1, &site);
        let operation = Convolution {
            shape: shape(rows, features, TAPS),
            limits: rank.documents_of(infos).map(|documents| limits(rank, documents, rows)),
            halo,
        };
        let weight = OperationParam {
            param: &self.weight,
            gradient_axes: S::GRADIENT_AXES,
            in_backward: InBackward::Reads,
        };
        Tensor::from_untyped(apply(
            operation,
            Operands {
                rank,
                path: self.weight.path(),
                inputs: [OperationInput::new(value, InBackward::Reads)],
                params: [weight],
                extents: extents.to_vec(),
            },
        ))
    }
}

/// Returns the sizes of a convolution of rows, whose last dim is the sequence, over all channels of the features.
fn shape(rows: &[Extent], features: &[Extent], taps: usize) -> CausalConvShape {
    let len = |extents: &[Extent]| extents.iter().map(|extent| extent.local).product();
    let (sequence, samples) = rows.split_last().expect("an activation has a sequence");
    let mut ranges = [PositionRange::default(); 2];
    for (to, (_, range)) in ranges.iter_mut().zip(sequence.numbered_ranges()) {
        *to = PositionRange { len: range.len(), start: range.start };
    }
    CausalConvShape { batch: len(samples), ranges, channels: len(features), taps }
}

/// Returns the first position of the document of each row, and the position after its last one.
#[track_caller]
fn limits(rank: &Rank, documents: &DocumentIds, rows: &[Extent]) -> [Arc<Buffer>; 2] {
    rank.note_use_of_documents();
    [&documents.starts, &documents.ends]
        .map(|positions| part_of_rows(rank, positions, &documents.extents, rows))
}

/// A depthwise causal convolution. Its backward reads the gradients behind each range, and no halo of the input.
struct Convolution {
    shape: CausalConvShape,
    /// The first position that each row reads, and the end of the positions that read it, if rows hold several
    /// documents.
    limits: Option<[Arc<Buffer>; 2]>,
    halo: Halo,
}

impl Convolution {
    /// Exchanges the halos of `x` on one side, if other ranks hold a part of the sequence.
    fn exchange(&self, rank: &Rank, x: &Buffer, side: HaloSide) -> Option<Buffer> {
        (!self.halo.is_local() && self.shape.taps > 1)
            .then(|| self.halo.finish(rank, self.halo.start(rank, x, side), x))
    }

    fn neighbors<'a>(&'a self, halo: &'a Option<Buffer>, side: HaloSide) -> Neighbors<'a> {
        let limits = self.limits.as_ref().map(|[starts, ends]| match side {
            HaloSide::Before => starts.view(),
            HaloSide::After => ends.view(),
        });
        Neighbors { halo: halo.as_ref().map(|halo| halo.view()), limits }
    }
}

impl Operation<Count<1>, Count<1>> for Convolution {
    type Saved = [Arc<Buffer>; 0];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 0]) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        let x = x.compute().data;
        let halo = self.exchange(rank, &x, HaloSide::Before);
        let neighbors = self.neighbors(&halo, HaloSide::Before);
        let mut y = rank.alloc_activation(x.len());
        let (x, y_view) = (x.view(), y.view_mut());
        let args = CausalConvArgs { x, neighbors, weight, adjoint: false, y: y_view };
        rank.backend().causal_conv(&self.shape, args);
        (y, [])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        _: [Arc<Buffer>; 0],
    ) {
        let OperationBackward {
            gradients,
            inputs: [mut x],
            params: [weight_use],
            gradient: dy,
            ..
        } = backward;
        let rank = gradients.rank;
        let data = x.take_saved(rank);
        let halo = self.exchange(rank, &dy, HaloSide::After);
        if x.requires_grad() {
            let weight = weight_use.param().values();
            let mut dx = rank.alloc_activation(data.len());
            let args = CausalConvArgs {
                x: dy.view(),
                neighbors: self.neighbors(&halo, HaloSide::After),
                weight: weight.view(),
                adjoint: true,
                y: dx.view_mut(),
            };
            rank.backend().causal_conv(&self.shape, args);
            drop(weight);
            x.add_gradient(gradients, Arc::new(dx));
        }
        gradients.weight_gradient(move |gradients| {
            let backend = gradients.rank.backend();
            weight_use.finish_use(gradients, |view, accumulate| {
                let dweight = LeafGrad { view, accumulate };
                let (x, dy, neighbors) =
                    (data.view(), dy.view(), self.neighbors(&halo, HaloSide::After));
                let args = CausalConvWeightGradArgs { x, dy, neighbors, dweight };
                backend.causal_conv_weight_grad(&self.shape, args);
            });
        });
    }
}

impl<F, const TAPS: usize, Style> CausalConv<F, TAPS, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        const { assert!(TAPS > 0, "a convolution has at least one tap") };
        let init = Init::Normal(builder.sizes().init_std);
        builder.set_size::<Taps<TAPS>>(TAPS);
        // The filter of a channel is a row of its own: the weight maps no features to features.
        let weight: Param<S> = builder.table("weight", init);
        CausalConv { weight: weight.handle().clone(), kind: PhantomData }
    }
}

impl<F: LocalFeature, const TAPS: usize> Build for CausalConv<F, TAPS, Plain>
where
    (F, Taps<TAPS>): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        CausalConv::new::<(F, Taps<TAPS>)>(builder)
    }
}

impl<F: LocalFeature, const TAPS: usize, A: ModelAxis> Build for CausalConv<F, TAPS, Col<A>>
where
    (F::Split<A>, Taps<TAPS>): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        CausalConv::new::<(F::Split<A>, Taps<TAPS>)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<F, const TAPS: usize, A> Shard<Col<A>> for CausalConv<F, TAPS> {
    type Sharded = CausalConv<F, TAPS, Col<A>>;
}

stage_layers! {
    [F, const TAPS: usize, Style] CausalConv<F, TAPS, Style>;
}

impl<F, const TAPS: usize, Style> std::fmt::Debug for CausalConv<F, TAPS, Style> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_layer(f, "CausalConv", &[&self.weight])
    }
}

//! Contraction of a tensor with a weight: what comes out, a value or a partial sum, follows from the types.

use std::rc::Rc;
use std::sync::Arc;

use crate::autograd::region::{self, Line};
use crate::autograd::{Product, Value};
use crate::backend::Buffer;
use crate::comm::{ReduceOp, Site};
use crate::context::{Extent, Rank, check_sizes, local_len};
use crate::fsdp::ParamRef;
use crate::layout::{
    Axis, AxisId, AxisSet, Dim, Dims, Ends, Enter, Entry, Feature, Internal, Split, Whole,
    WholeFeature, With,
};

use super::{Partial, Tensor};

/// `y[.., O] = sum over I of x[.., I] · w[I, O]`, for a tensor shaped `Self` and a weight shaped `W = (I, O)`.
///
/// | `I` | `O` | result |
/// |---|---|---|
/// | whole | whole | a value |
/// | whole | split over `A` | a value split over `A`; `x` enters the region of `A` |
/// | split over `A` in both | whole | a partial sum over `A` |
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be contracted with a weight shaped `{W}`",
    label = "the dims do not fit",
    note = "the tensor must end in the dim that the weight begins with, split in both or in neither",
    note = "a weight that writes a split dim takes a tensor that is not yet split over that axis, or only along the dim before the last: gather it, or reduce it first"
)]
pub trait Contract<W>: Dims {
    /// [`Tensor`] or [`Partial`].
    type Out: FromValue;
    /// How the tensor comes into the region of the contraction.
    const ENTRY: Entry;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// Number of dims that are summed over.
    const CONTRACTED: usize;
}

/// A typed result made of an untyped one.
pub trait FromValue {
    #[doc(hidden)]
    fn from_value(value: Value, site: Site, internal: Internal) -> Self;
}

impl<S: Dims> FromValue for Tensor<S> {
    fn from_value(value: Value, _: Site, _: Internal) -> Self {
        Tensor::wrap(value)
    }
}

impl<S: Dims, A: Axis> FromValue for Partial<S, A> {
    fn from_value(value: Value, site: Site, _: Internal) -> Self {
        Partial::wrap(value, site)
    }
}

/// A parameter's gradient is partial over what its operation's input and output vary over and it does not.
pub(crate) const fn gradient_axes(input: AxisSet, output: AxisSet, param: AxisSet) -> AxisSet {
    input.or(output).minus(param)
}

type Put<L, O> = <L as With<O>>::Out;

#[diagnostic::do_not_recommend]
impl<X, I, O> Contract<(I, O)> for X
where
    X: Ends<I>,
    I: WholeFeature,
    O: WholeFeature,
    X::Lead: With<O>,
{
    type Out = Tensor<Put<X::Lead, O>>;
    const ENTRY: Entry = Entry::Stay;
    const GRADIENT_AXES: AxisSet =
        gradient_axes(X::VARIES, Put::<X::Lead, O>::VARIES, AxisSet::NONE);
    const CONTRACTED: usize = I::DIMS.len();
}

macro_rules! split_output {
    ($(<$($dim:ident: $bound:ident),+> $out:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<X, I, A: Axis, $($dim: $bound),+> Contract<(I, $out)> for X
        where
            X: Ends<I>,
            I: WholeFeature,
            X::Lead: Enter<A>,
            <X::Lead as Enter<A>>::Inside: With<I> + With<$out>,
        {
            type Out = Tensor<Put<<X::Lead as Enter<A>>::Inside, $out>>;
            const ENTRY: Entry = <X::Lead as Enter<A>>::ENTRY;
            const GRADIENT_AXES: AxisSet = gradient_axes(
                Put::<<X::Lead as Enter<A>>::Inside, I>::VARIES,
                Put::<<X::Lead as Enter<A>>::Inside, $out>::VARIES,
                <$out as Feature>::VARIES,
            );
            const CONTRACTED: usize = I::DIMS.len();
        }
    )*};
}

split_output! {
    <D: Whole> Split<D, A>;
    <D: Whole, E: Dim> (Split<D, A>, E);
}

macro_rules! split_input {
    ($(<$($dim:ident: $bound:ident),+> $input:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<X, O, A: Axis, $($dim: $bound),+> Contract<($input, O)> for X
        where
            X: Ends<$input>,
            O: WholeFeature,
            X::Lead: With<O>,
        {
            type Out = Partial<Put<X::Lead, O>, A>;
            const ENTRY: Entry = Entry::Stay;
            const GRADIENT_AXES: AxisSet =
                gradient_axes(X::VARIES, Put::<X::Lead, O>::VARIES, <$input as Feature>::VARIES);
            const CONTRACTED: usize = <$input as Feature>::DIMS.len();
        }
    )*};
}

split_input! {
    <D: Whole> Split<D, A>;
    <D: Whole, E: Dim> (Split<D, A>, E);
}

/// Which dims of a weight are summed over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads {
    /// As many of the first: a linear layer's `(I, O)`.
    First(usize),
    /// As many of the last: a head's `(Vocab, Hidden)`.
    Last(usize),
}

/// What a contraction is, apart from its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contraction {
    /// Which dims of the weight are summed over.
    pub(crate) reads: Reads,
    /// How the tensor comes into the region of the contraction.
    pub(crate) entry: Entry,
    /// The axes over which the weight's gradient is partial.
    pub(crate) gradient_axes: AxisSet,
    /// The axis over which the result is summed, and the dim that is split over it then, if any.
    pub(crate) leaves: Option<(AxisId, Option<usize>)>,
}

/// Contracts the last dims of `x` with those of `weight`, after `x` has entered the region, and leaves the region.
#[track_caller]
pub(crate) fn contract(x: &Value, weight: &ParamRef, how: Contraction, site: &Site) -> Value {
    x.rank().check_same(weight.rank());
    let x = region::enter(x, how.entry, site);
    let rank = x.rank();
    let (contracted, weight_in, weight_out) = match how.reads {
        Reads::First(dims) => {
            let (read, written) = weight.local_extents().split_at(dims);
            (dims, read, written)
        }
        Reads::Last(dims) => {
            let (written, read) =
                weight.local_extents().split_at(weight.local_extents().len() - dims);
            (dims, read, written)
        }
    };
    let (lead, read) = x.extents().split_at(x.extents().len() - contracted);
    let read_dims = match how.reads {
        Reads::First(dims) => &weight.dims()[..dims],
        Reads::Last(dims) => &weight.dims()[weight.dims().len() - dims..],
    };
    let name = format!("what `{}` reads", weight.path());
    check_sizes(read_dims, (&name, weight_in), ("its input", read));
    let (m, k, n) = (local_len(lead), local_len(weight_in), local_len(weight_out));
    let transposed = matches!(how.reads, Reads::Last(_));
    let product = [lead, weight_out].concat();
    let exit = Rc::new(Exit::new(rank, &product, how.leaves, site));
    let extents = exit.extents(product);
    // What `x` is made of is computed here, whenever the product is.
    x.compute();
    let product = Product {
        x: x.clone(),
        weight: weight.clone(),
        gradient_axes: how.gradient_axes,
        m,
        k,
        n,
        transposed,
        exit,
        site: site.clone(),
    };
    Value::product(rank, extents, product)
}

/// How a product leaves the region it was computed in.
pub(crate) enum Exit {
    /// It does not.
    Stays,
    /// Summed over the axis: all-reduce forward, identity backward.
    Sums(AxisSet),
    /// Summed, and split over the axis: reduce-scatter forward, all-gather backward.
    Scatters(Line),
}

impl Exit {
    fn new(
        rank: &Rank,
        extents: &[Extent],
        leaves: Option<(AxisId, Option<usize>)>,
        site: &Site,
    ) -> Exit {
        match leaves {
            Some((axis, _)) if rank.degree(axis) == 1 => Exit::Stays,
            None => Exit::Stays,
            Some((axis, None)) => Exit::Sums(AxisSet::of(axis)),
            Some((axis, Some(dim))) => Exit::Scatters(Line::new(rank, extents, axis, dim, site)),
        }
    }

    /// Whether it does not leave.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Exit::Stays)
    }

    fn extents(&self, product: Vec<Extent>) -> Vec<Extent> {
        match self {
            Exit::Stays | Exit::Sums(_) => product,
            Exit::Scatters(line) => line.split.clone(),
        }
    }

    pub(crate) fn forward(&self, rank: &Rank, mut product: Buffer, site: &Site) -> Buffer {
        match self {
            Exit::Stays => product,
            Exit::Sums(axes) => {
                rank.all_reduce(*axes, site, ReduceOp::Sum, product.view_mut());
                product
            }
            Exit::Scatters(line) => line.reduce_scatter(rank, &product),
        }
    }

    pub(crate) fn backward(&self, rank: &Rank, dy: Arc<Buffer>) -> Arc<Buffer> {
        match self {
            Exit::Stays | Exit::Sums(_) => dy,
            Exit::Scatters(line) => Arc::new(line.all_gather(rank, &dy)),
        }
    }
}

//! Biases of experts: each expert has one, which is added to the rows that were routed to it.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{
    AxisSet, Dim, Dims, Here, LocalFeature, OnEveryRank, Routed, Seal, Split, SplitAxes, StackDim,
    Stacked, Whole,
};
use crate::tensor::{
    Count, InBackward, Init, Operand, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, OperationParam, Param, ParamRef, RoutedRows, Tensor, Value, apply,
    gradient_axes,
};
use meshwright_backend::{Buffer, Expr, LeafGrad, Node, ViewMut};

use super::super::debug::debug_layers;
use super::super::{Build, Builder, ByExpert, Layer, Plain, Shard};
use super::grouped_linear::SplitsExperts;
use super::grouped_matmul::{groups, routed_rows};

/// Adds a bias over the last dim (or pair of dims) `O` for each of the experts `E`.
///
/// Shape: `[rows, O] -> [rows, O]`; `bias[E, O]`.
///
/// It takes rows that were routed to the experts of this rank, `(Routed<L, E>, O)`, and has the styles of
/// [`GroupedLinear`](super::GroupedLinear).
pub struct GroupedBias<E, O, Style = Plain> {
    bias: ParamRef,
    kind: PhantomData<(E, O, Style)>,
}

/// Adds the bias of its expert to each row.
impl<E, O, Style: SplitsExperts<E>, S, T> Layer<T> for GroupedBias<E, O, Style>
where
    S: GroupedBiasInput<Style::Own, O>,
    T: Operand<Shape = S>,
{
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let x = x.operand().value();
        Tensor::from_untyped(add_biases(x, &self.bias, S::GRADIENT_AXES))
    }
}

/// Shapes of rows that were routed to the experts `P` of this rank, for their biases over `O`.
#[diagnostic::on_unimplemented(
    message = "a bias over `{O}` of the experts `{P}` cannot be added to an activation shaped `{Self}`",
    label = "not rows of `{O}` that were routed to these experts",
    note = "it is added to what a `GroupedLinear` of the same experts writes, with the same annotation"
)]
pub trait GroupedBiasInput<P, O>: Dims {
    /// The axes over which the gradient of the bias is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<L: Dims, P: Dim, O: Whole<Home = Here>> GroupedBiasInput<P, O> for (Routed<L, P>, O) {
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::VARIES, Self::VARIES, P::VARIES);
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<L: Dims, P: Dim, F: Whole<Home = Here>, G: Whole<Home = Here>> GroupedBiasInput<P, (F, G)>
    for (Routed<L, P>, F, G)
{
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::VARIES, Self::VARIES, P::VARIES);
    const SEAL: Seal = Seal::new();
}

impl<E: Whole, O: LocalFeature> Build for GroupedBias<E, O, Plain>
where
    E::Home: OnEveryRank<E>,
    Stacked<E, (), O>: Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        GroupedBias::new::<Stacked<E, (), O>>(builder)
    }
}

impl<E: Whole, O: LocalFeature, A: SplitAxes> Build for GroupedBias<E, O, ByExpert<A>>
where
    Split<E, A>: StackDim,
    Stacked<Split<E, A>, (), O>: Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        GroupedBias::new::<Stacked<Split<E, A>, (), O>>(builder)
    }
}

impl<E, O, Style> GroupedBias<E, O, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let bias: Param<S> = builder.param("bias", Init::Zeros);
        GroupedBias { bias: bias.handle().clone(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<E, O, A> Shard<ByExpert<A>> for GroupedBias<E, O> {
    type Sharded = GroupedBias<E, O, ByExpert<A>>;
}

/// Adds to each row the bias of its expert.
#[track_caller]
fn add_biases(x: &Value, bias: &ParamRef, gradient_axes: AxisSet) -> Value {
    let extents = x.extents();
    let (experts, added) = bias.local_extents().split_first().expect("biases have experts");
    let rows = routed_rows(x, bias, *experts, (added, &extents[1..]));
    let cols = added.iter().map(|extent| extent.local).product();
    let operands = Operands::<Count<1>, Count<1>> {
        rank: x.rank(),
        path: bias.path(),
        inputs: [OperationInput::new(x, InBackward::Ignores)],
        params: [OperationParam { param: bias, gradient_axes, in_backward: InBackward::Ignores }],
        extents: extents.to_vec(),
    };
    apply(AddBiases { rows, cols }, operands)
}

/// The sum of rows and the bias of the expert of each.
struct AddBiases {
    rows: Rc<RoutedRows>,
    cols: usize,
}

impl AddBiases {
    /// Returns the elements of rows.
    fn elements(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.cols..rows.end * self.cols
    }

    fn bias_of(&self, expert: usize) -> Range<usize> {
        expert * self.cols..(expert + 1) * self.cols
    }
}

/// Returns the expression of a row and a vector that is added to it.
fn sum_with_row() -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)] }
}

impl Operation<Count<1>, Count<1>> for AddBiases {
    type Saved = [Arc<Buffer>; 0];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 0]) {
        let OperationForward { rank, inputs: [x], params: [bias], .. } = forward;
        let x = x.compute().data;
        let mut out = rank.alloc_activation(x.len());
        for (expert, rows) in groups(&self.rows) {
            let elements = self.elements(&rows);
            let leaves = [x.view().slice(elements.clone()), bias.slice(self.bias_of(expert))];
            rank.backend().map(&sum_with_row(), &leaves, out.view_mut().into_slice(elements));
        }
        (out, [])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        _: [Arc<Buffer>; 0],
    ) {
        let OperationBackward { gradients, inputs: [x], params: [bias], gradient: dy, .. } =
            backward;
        x.add_gradient(gradients, Arc::clone(&dy));
        if bias.param().is_frozen() {
            return;
        }
        gradients.weight_gradient(move |gradients| {
            bias.finish_use(gradients, |mut dbias: ViewMut<'_>, accumulate| {
                let backend = gradients.rank.backend();
                if !accumulate {
                    // Experts without rows have gradients too.
                    backend.fill(dbias.reborrow(), 0.0);
                }
                for (expert, rows) in groups(&self.rows) {
                    let dy = dy.view().slice(self.elements(&rows));
                    let view = dbias.reborrow().into_slice(self.bias_of(expert));
                    let sums = LeafGrad { view, accumulate: true };
                    // The sum does not depend on the values of its terms.
                    let leaves = [dy, dy.slice(0..self.cols)];
                    backend.map_backward(&sum_with_row(), &leaves, dy, &mut [None, Some(sums)]);
                }
            });
        });
    }
}

debug_layers! {
    GroupedBias<E, O, Style>: bias;
}

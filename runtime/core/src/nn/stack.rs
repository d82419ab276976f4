//! Stacks of identical layers.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::slice;

use crate::layout::Whole;
use crate::tensor::{Rank, RunningStage, SegmentData, at_stage_boundary, recompute};

use super::recompute::Segment;
use super::{Build, Builder, Layer, Layers};

/// A sequence of `N` layers `M`, each applied to the output of the one before. Each layer is its own FSDP unit.
///
/// Shape: that of `M`, whose output is the input of the next layer.
///
/// Any stack can be recomputed: by `#[recompute]`, or by [`Sizes::recompute`](super::Sizes). So its inputs are
/// [`SegmentData`], and code generic in `M` needs the bound `M: 'static`.
///
/// A model with several stacks gives each its own count: `Stack<Block, EncoderLayers>`.
pub struct Stack<M, N = Layers> {
    layers: Rc<[M]>,
    /// Segments that cover all layers, in order.
    pub(super) segments: Vec<Segment>,
    rank: Rank,
    count: PhantomData<N>,
}

/// Applies all layers in order.
impl<X: StackInput<M>, M, N> Layer<X> for Stack<M, N> {
    type Out = X;

    #[track_caller]
    fn forward(&self, x: &X) -> X {
        self.forward_layers(0..self.layers.len(), x.clone())
    }
}

impl<M, N> Stack<M, N> {
    /// Applies the layers of a range in order. Of a segment that reaches beyond the range, the layers inside are
    /// recomputed together.
    #[track_caller]
    pub(super) fn forward_layers<X>(&self, layers: Range<usize>, x: X) -> X
    where
        X: StackInput<M>,
    {
        let mut x = x;
        for (index, segment) in self.segments.iter().enumerate() {
            let own = segment.layers.start.max(layers.start)..segment.layers.end.min(layers.end);
            if !own.is_empty() {
                x = X::apply_segment(self, index, own, &x);
            }
        }
        x
    }

    /// The layers, in order.
    pub fn layers(&self) -> &[M] {
        &self.layers
    }

    #[doc(hidden)]
    pub fn iter(&self) -> slice::Iter<'_, M>
    where
        (Self,): AppliedInOrder,
    {
        <(Self,)>::never_implemented()
    }
}

/// Never applies; the message of its bound explains the fix. It is the bound of a tuple, because the compiler shows no
/// message of a bound of the stack itself.
impl<'a, M, N> Iterator for &'a Stack<M, N>
where
    (Stack<M, N>,): AppliedInOrder,
{
    type Item = &'a M;

    fn next(&mut self) -> Option<&'a M> {
        <(Stack<M, N>,)>::never_implemented()
    }
}

/// Never implemented: a stack that is an iterator of its layers.
#[diagnostic::on_unimplemented(
    message = "a stack is applied as one layer, and not by a loop",
    label = "not an iterator",
    note = "write `self.blocks.forward(x)` instead of the loop: it applies all layers in order, recomputes them as \
            declared, and can be cut into pipeline stages",
    note = "to look at the layers one by one: `self.blocks.layers()`"
)]
pub trait AppliedInOrder {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// An input of a stack of layers `M`: each layer returns the type that it takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input of a stack of `{M}`",
    label = "each layer's output is the input of the next one",
    note = "the `forward` of a layer in a stack takes and returns the same type, which is also the input type of the \
            stack; a stream that they take split is split before: `#[sharded(tp = \"vocab\", scatter = Seq)]` on the \
            embedding",
    note = "that type is a tensor, tokens, or a tuple of them, so that the stack can be recomputed; layers find the \
            documents of their tokens themselves",
    note = "a layer of your own is a `#[model]` with a `#[forward]`, or implements `Layer`"
)]
pub trait StackInput<M>: Clone {
    #[doc(hidden)]
    #[track_caller]
    fn apply_segment<N>(
        stack: &Stack<M, N>,
        segment: usize,
        layers: Range<usize>,
        x: &Self,
    ) -> Self;
}

#[diagnostic::do_not_recommend]
impl<X: SegmentData, M: Layer<X, Out = X> + 'static> StackInput<M> for X {
    #[track_caller]
    fn apply_segment<N>(stack: &Stack<M, N>, segment: usize, layers: Range<usize>, x: &X) -> X {
        let x = at_stage_boundary(x);
        let Some(checkpointed) = &stack.segments[segment].checkpointed else {
            return apply_layers(&stack.layers, layers, x);
        };
        let all = Rc::clone(&stack.layers);
        recompute(&stack.rank, checkpointed, &x, move |x| {
            apply_layers(&all, layers.clone(), x.clone())
        })
    }
}

#[track_caller]
fn apply_layers<X: SegmentData, M: Layer<X, Out = X>>(
    all: &[M],
    layers: Range<usize>,
    mut x: X,
) -> X {
    for index in layers {
        let _running = RunningStage::begin_layer(index);
        x = at_stage_boundary(&all[index].forward(&x));
    }
    x
}

impl<M: Build + 'static, N: Whole> Build for Stack<M, N> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let declared = builder.take_policy();
        let size = builder.size::<N>();
        let count = if builder.contains_itself::<M>("a stack") { 0 } else { size };
        let layers =
            (0..count).map(|index| M::build(&mut builder.element::<M>(index, count))).collect();
        let segments = builder.segments(declared, count);
        Stack { layers, segments, rank: builder.rank().clone(), count: PhantomData }
    }
}

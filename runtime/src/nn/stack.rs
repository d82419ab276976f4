//! A run of equal layers.

use std::marker::PhantomData;
use std::rc::Rc;

use crate::layout::{Here, Local, Whole};
use crate::tensor::{Rank, RegionData, recompute};

use super::recompute::Segment;
use super::{Build, Builder, Layer};

/// Counts the elements of a [`Stack`]: `Sizes::new().with(Layers, 12)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layers;

#[diagnostic::do_not_recommend]
impl Whole for Layers {
    const DECLARED_NAME: &'static str = "Layers";
    type Home = Here;
}

#[diagnostic::do_not_recommend]
impl Local for Layers {}

/// `N` layers `M`, one after the other; the output of each is the input of the next. Each is a unit of its own.
///
/// Any stack can be recomputed: by `#[recompute]`, or by what [`Sizes::recompute`](super::Sizes) says. So what goes
/// through it is [`RegionData`], and code that is generic in `M` says that `M: 'static`.
///
/// A model with several stacks gives each its own count: `Stack<Block, EncoderLayers>`.
pub struct Stack<M, N = Layers> {
    layers: Rc<[M]>,
    /// All of the layers, in order.
    pub(super) segments: Vec<Segment>,
    rank: Rank,
    count: PhantomData<N>,
}

impl<M, N> Stack<M, N> {
    /// Applies one layer after the other.
    #[track_caller]
    pub fn forward<X>(&self, x: &X) -> X
    where
        X: Through<M>,
    {
        let mut x = x.clone();
        for segment in 0..self.segments.len() {
            x = X::through(self, segment, &x);
        }
        x
    }

    /// The layers.
    pub fn layers(&self) -> &[M] {
        &self.layers
    }
}

/// What can go through layers `M` one after the other: each gives what it takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot go through a stack of `{M}`",
    label = "each layer feeds the next one",
    note = "the `forward` of a layer in a stack takes and returns the same type, and the stack takes that, too",
    note = "that type is a tensor, tokens, or a tuple of them: what can be recomputed from"
)]
pub trait Through<M>: Clone {
    #[doc(hidden)]
    #[track_caller]
    fn through<N>(stack: &Stack<M, N>, segment: usize, x: &Self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<X: RegionData, M: Layer<X, Out = X> + 'static> Through<M> for X {
    #[track_caller]
    fn through<N>(stack: &Stack<M, N>, segment: usize, x: &X) -> X {
        let Segment { layers: range, region } = &stack.segments[segment];
        let range = range.clone();
        let Some(region) = region else { return run(&stack.layers[range], x) };
        let layers = Rc::clone(&stack.layers);
        recompute(&stack.rank, region, x, move |x| run(&layers[range.clone()], x))
    }
}

#[track_caller]
fn run<X: Clone, M: Layer<X, Out = X>>(layers: &[M], x: &X) -> X {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x);
    }
    x
}

impl<M: Build + 'static, N: Whole> Build for Stack<M, N> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let declared = builder.take_policy();
        let mut count = builder.size::<N>();
        if builder.is_in_stack_of::<M>() {
            let layer = std::any::type_name::<M>();
            builder.problem(format_args!(
                "is a stack of `{layer}` inside of a `{layer}`: a model that contains itself has no end; give the inner \
                 layers a type of their own"
            ));
            count = 0;
        }
        let layers = (0..count).map(|index| M::build(&mut builder.element::<M>(index))).collect();
        let segments = builder.segments(declared, count);
        Stack { layers, segments, rank: builder.rank().clone(), count: PhantomData }
    }
}

impl<X: Through<M>, M, N> Layer<X> for Stack<M, N> {
    type Out = X;

    #[track_caller]
    fn forward(&self, x: &X) -> X {
        Stack::forward(self, x)
    }
}

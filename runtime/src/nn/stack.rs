//! A run of equal layers.

use std::marker::PhantomData;

use crate::layout::{AxisSet, Dim, Here, Local, Whole};

use super::{Build, Builder, Layer};

/// Counts the elements of a [`Stack`]: `Sizes::new().with(Layers, 12)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layers;

impl Dim for Layers {
    const NAME: &'static str = "Layers";
    const VARIES: AxisSet = AxisSet::NONE;
}

#[diagnostic::do_not_recommend]
impl Whole for Layers {
    type Home = Here;
}

#[diagnostic::do_not_recommend]
impl Local for Layers {}

/// `N` layers `M`, one after the other; the output of each is the input of the next. Each is a unit of its own.
///
/// A model with several stacks gives each its own count: `Stack<Block, EncoderLayers>`.
pub struct Stack<M, N = Layers> {
    layers: Vec<M>,
    count: PhantomData<N>,
}

impl<M, N> Stack<M, N> {
    /// Applies one layer after the other.
    pub fn forward<X>(&self, x: &X) -> X
    where
        X: Clone + Through<M>,
    {
        let mut x = x.clone();
        for layer in &self.layers {
            x = X::through(layer, &x);
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
    note = "the `forward` of a layer in a stack takes and returns the same type, and the stack takes that, too"
)]
pub trait Through<M>: Sized {
    #[doc(hidden)]
    fn through(layer: &M, x: &Self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<X, M: Layer<X, Out = X>> Through<M> for X {
    fn through(layer: &M, x: &X) -> X {
        layer.forward(x)
    }
}

impl<M: Build, N: Whole> Build for Stack<M, N> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let count = builder.size::<N>();
        let layers = (0..count).map(|index| M::build(&mut builder.element(index))).collect();
        Stack { layers, count: PhantomData }
    }
}

impl<X: Clone, M: Layer<X, Out = X>, N> Layer<X> for Stack<M, N> {
    type Out = X;

    fn forward(&self, x: &X) -> X {
        Stack::forward(self, x)
    }
}

//! Activation checkpointing (recomputation) of models and stacks: `#[recompute(..)]`.

mod not_recomputed;
mod policy;
mod segments;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::rc::Rc;

use crate::tensor::{CheckpointedSegment, Rank, SegmentData, at_boundary, recompute};

pub use not_recomputed::{Alone, Grouped, NotRecomputed};
pub use policy::{Grouping, RecomputeOverride, RecomputePolicy, UnknownRecompute};
pub(super) use segments::Segment;

use super::{Build, Builder, ForwardInput, Layer, Module, Stack};

/// Traits of types that can be recomputed, each with a never implemented one that has the same message.
macro_rules! recomputable {
    ($(#[doc = $doc:literal])* $name:ident, $never:ident, $(#[$message:meta])*) => {
        $(#[doc = $doc])*
        $(#[$message])*
        pub trait $name {
            /// The field that recomputes.
            type Recomputed;
            /// The type whose fields `save = [..]` names: the model itself, or the layer of a stack.
            type Layer;
        }

        /// Never implemented: the bound of a field of this library that is recomputed nevertheless.
        $(#[$message])*
        pub trait $never {
            #[doc(hidden)]
            fn never_implemented() -> !;
        }
    };
}

recomputable! {
    /// A type that can be recomputed: `#[recompute]` on a field of type `F` makes the field a
    /// `<F as Recompute>::Recomputed`.
    ///
    /// Models (`#[model]` implements the trait) and stacks can be recomputed. Implement it for your own layer, with
    /// [`Recomputed<Self>`](Recomputed), to allow the annotation.
    Recompute, RecomputesAlone,
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be recomputed by itself",
        label = "not a model or a `Stack`",
        note = "`#[recompute]` applies to models and stacks: a layer only saves its inputs for backward, so \
                recomputing it alone saves no memory; annotate the field that holds the model of this layer",
        note = "your own layer can be recomputed once it implements `Recompute`"
    )]
}

recomputable! {
    /// A type with layers that can be recomputed in groups: `#[recompute(every = 2)]`.
    RecomputeEvery, RecomputesGroups,
    #[diagnostic::on_unimplemented(
        message = "`{Self}` has no layers that `every` could group",
        label = "not a `Stack`",
        note = "`every` sets how many layers of a `Stack` are recomputed together; a model is recomputed as a whole: \
                write `#[recompute]` without `every`"
    )]
}

#[diagnostic::do_not_recommend]
impl<M, N> Recompute for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}

#[diagnostic::do_not_recommend]
impl<M, N> RecomputeEvery for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}

/// A model whose `forward` is one checkpointed segment: backward recomputes it from its input.
///
/// It has the input and output types of the model, and dereferences to it; other methods of the model are not
/// recomputed.
pub struct Recomputed<M> {
    model: Rc<M>,
    /// `None` if an override of the run replaces the model's attributes.
    segment: Option<Rc<CheckpointedSegment>>,
    rank: Rank,
}

impl<M: Module + 'static> Recomputed<M> {
    /// Computes the model's output for `x`.
    pub fn forward(&self, x: &impl ForwardInput<M::In>) -> M::Out
    where
        M::In: SegmentData,
        M::Out: SegmentData,
    {
        self.run_recomputed(x.as_declared())
    }
}

impl<M: 'static> Recomputed<M> {
    fn run_recomputed<X: SegmentData>(&self, x: &X) -> M::Out
    where
        M: Layer<X>,
        M::Out: SegmentData,
    {
        let model = Rc::clone(&self.model);
        let forward = move |x: &X| at_boundary(&model.forward(x));
        let x = at_boundary(x);
        match &self.segment {
            Some(segment) => recompute(&self.rank, segment, &x, forward),
            None => forward(&x),
        }
    }
}

impl<M> Deref for Recomputed<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M: Build> Build for Recomputed<M> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let declared = builder.take_policy();
        let model = Rc::new(M::build(builder));
        Recomputed { model, segment: builder.model_segment(declared), rank: builder.rank().clone() }
    }
}

impl<X: SegmentData, M: Layer<X> + 'static> Layer<X> for Recomputed<M>
where
    M::Out: SegmentData,
{
    type Out = M::Out;

    fn forward(&self, x: &X) -> M::Out {
        self.run_recomputed(x)
    }
}

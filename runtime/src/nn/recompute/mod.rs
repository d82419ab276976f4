//! Recomputation of what fields compute: `#[recompute(..)]`.

mod policy;
mod regions;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::rc::Rc;

use crate::tensor::{Rank, Region, RegionData, recompute};

pub use policy::{Grouping, RecomputeOverride, RecomputePolicy, UnknownRecompute};
pub(super) use regions::Segment;

use super::{Build, Builder, Fits, Layer, Module, Stack};

/// What can be recomputed: `#[recompute]` on a field of type `F` makes the field a `<F as Recompute>::Recomputed`.
///
/// Models (`#[model]` implements it) and stacks can. Implement it for a layer of your own, with [`Recomputed<Self>`](Recomputed), to let it be
/// annotated.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recomputed by itself",
    label = "not a model or a `Stack`",
    note = "`#[recompute]` goes on models and stacks: a layer keeps for backward just what it reads, so recomputing it alone saves nothing; annotate the field that holds the model in which this layer is",
    note = "a layer of your own can be recomputed once it implements `Recompute`"
)]
pub trait Recompute {
    /// The field that recomputes.
    type Recomputed;
    /// That whose fields `save = [..]` names: the model itself, or the layer of a stack.
    type Layer;
}

#[diagnostic::do_not_recommend]
impl<M, N> Recompute for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}

/// What has layers that can be recomputed in groups: `#[recompute(every = 2)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no layers that `every` could group",
    label = "not a `Stack`",
    note = "`every` says how many layers of a `Stack` are recomputed together; a model is recomputed as a whole: write `#[recompute]` without `every`"
)]
pub trait RecomputeEvery {
    /// The field that recomputes.
    type Recomputed;
    /// One of the layers, whose fields `save = [..]` names.
    type Layer;
}

#[diagnostic::do_not_recommend]
impl<M, N> RecomputeEvery for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}

/// A model whose `forward` is one region: backward computes it once more, from what entered it.
///
/// It takes and gives what the model does. The model's fields and other methods can be used through it; these are not
/// recomputed.
pub struct Recomputed<M> {
    model: Rc<M>,
    /// None where the run recomputes otherwise.
    region: Option<Rc<Region>>,
    rank: Rank,
}

impl<M: Module + 'static> Recomputed<M> {
    /// The forward function of the model.
    pub fn forward(&self, x: &impl Fits<M::In>) -> M::Out
    where
        M::In: RegionData,
        M::Out: RegionData,
    {
        self.run(x.fits())
    }
}

impl<M: 'static> Recomputed<M> {
    fn run<X: RegionData>(&self, x: &X) -> M::Out
    where
        M: Layer<X>,
        M::Out: RegionData,
    {
        let Some(region) = &self.region else { return self.model.forward(x) };
        let model = Rc::clone(&self.model);
        recompute(&self.rank, region, x, move |x| model.forward(x))
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
        Recomputed { model, region: builder.region(declared), rank: builder.rank().clone() }
    }
}

impl<X: RegionData, M: Layer<X> + 'static> Layer<X> for Recomputed<M>
where
    M::Out: RegionData,
{
    type Out = M::Out;

    fn forward(&self, x: &X) -> M::Out {
        self.run(x)
    }
}

//! RMSNorm over a pair of dims that is split along its first one.

use crate::layout::{
    Axis, AxisSet, Dims, Ends, Feature, ModelAxis, OnEveryRank, Seal, Split, Whole, WholeFeature,
};
use crate::tensor::{Operand, Tensor, gradient_axes};
use meshwright_comm::Site;

use super::super::{Build, Builder, Col, Layer, Shard};
use super::RmsNorm;
use super::operation::{SplitRows, rms_norm};

/// Input shapes of a norm over `H`, which is split over `A`: they end in that split.
#[diagnostic::on_unimplemented(
    message = "a norm over `{H}`, split over `{A}`, cannot take an activation shaped `{Self}`",
    label = "does not end in a `{H}` whose first dim is split over `{A}`",
    note = "it normalizes what column-parallel layers write; a norm of whole rows has no `#[sharded(..)]`"
)]
pub trait SplitNormInput<H, A>: Dims {
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H::Split<A>>, H: WholeFeature, A: Axis> SplitNormInput<H, A> for X {
    const GRADIENT_AXES: AxisSet =
        gradient_axes(X::VARIES, X::VARIES, <H::Split<A> as Feature>::VARIES);
    const SEAL: Seal = Seal::new();
}

/// Normalizes `x`, a shard of the activation, over the elements of all shards.
impl<H, A: Axis, S: SplitNormInput<H, A>, T: Operand<Shape = S>> Layer<T> for RmsNorm<H, Col<A>> {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let cols = self.weight.global_len();
        let site: Site = self.weight.site().clone();
        let split = SplitRows { axes: AxisSet::of(A::ID), cols, site };
        Tensor::from_untyped(rms_norm(
            x.operand().value(),
            &self.weight,
            self.options,
            S::GRADIENT_AXES,
            Some(split),
        ))
    }
}

impl<D: Whole, E: Whole, A: ModelAxis> Build for RmsNorm<(D, E), Col<A>>
where
    D::Home: OnEveryRank<D>,
    E::Home: OnEveryRank<E>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        RmsNorm::new::<((Split<D, A>, E),)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<D, E, A> Shard<Col<A>> for RmsNorm<(D, E)> {
    type Sharded = RmsNorm<(D, E), Col<A>>;
}

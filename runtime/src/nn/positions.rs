//! Learned positions.

use std::marker::PhantomData;

use crate::layout::{AxisSet, Dims, Ends, OnEveryRank, Seal, Whole, With};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, Tokens, gradient_axes};

use super::embedding::look_up_rows;
use super::{Build, Builder, Layer};

/// Adds a learned row of `H` for each position of the sequence, the dim before `H`; the weight is shaped `(P, H)`.
///
/// Sequences may be shorter than the `P` positions of the table. If the stream is split along the sequence, each rank
/// adds the rows of its own shard, from a table that is whole on all of them.
pub struct LearnedPositions<P, H> {
    weight: ParamRef,
    kind: PhantomData<(P, H)>,
}

impl<P, H> LearnedPositions<P, H> {
    /// Computes `x[.., position, :] + weight[position, :]`.
    ///
    /// # Panics
    /// If the sequence is longer than the table.
    #[track_caller]
    pub fn forward<T: Operand>(&self, x: &T) -> Tensor<T::Shape>
    where
        T::Shape: SequenceInput<H>,
    {
        let x = x.operand();
        let (sequence, table) =
            (x.local_extents()[x.local_extents().len() - 2], self.weight.local_extents()[0]);
        assert!(
            sequence.global <= table.global,
            "`{}` has {} positions, and is used on sequences of {}",
            self.weight.path(),
            table.global,
            sequence.global
        );
        let axes = gradient_axes(T::Shape::VARIES, T::Shape::VARIES, AxisSet::NONE);
        let lead = &x.local_extents()[..x.local_extents().len() - 1];
        let places =
            Tokens::<<T::Shape as SequenceInput<H>>::Tokens>::places(x.value().rank(), lead);
        x + Tensor::wrap(look_up_rows(&places, &self.weight, axes))
    }
}

/// Shapes of activations whose last two dims are a sequence and `H`.
#[diagnostic::on_unimplemented(
    message = "positions of width `{H}` cannot be added to an activation shaped `{Self}`",
    label = "it must end in a sequence and a whole `{H}`"
)]
pub trait SequenceInput<H>: Dims {
    /// The shape of the tokens.
    type Tokens: Dims;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole> SequenceInput<H> for X
where
    X::Lead: Dims + With<H>,
{
    type Tokens = X::Lead;
    const SEAL: Seal = Seal::new();
}

impl<P: Whole, H: Whole> Build for LearnedPositions<P, H>
where
    P::Home: OnEveryRank<P>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<(P, H)> = builder.table("weight", Init::Normal(std));
        LearnedPositions { weight: weight.handle().clone(), kind: PhantomData }
    }
}

impl<P, H, X: SequenceInput<H>> Layer<Tensor<X>> for LearnedPositions<P, H> {
    type Out = Tensor<X>;

    #[track_caller]
    fn forward(&self, x: &Tensor<X>) -> Tensor<X> {
        LearnedPositions::forward(self, x)
    }
}

//! Auxiliary losses, attached to a tensor beside which their terms are computed.

use crate::layout::Dims;

use super::{Operand, Tensor};

impl<S: Dims> Tensor<S> {
    /// Returns the tensor, with an auxiliary loss: `terms`, such as the [load-balancing
    /// loss](crate::nn::TokenRouting::load_balancing_loss) of a router. They are added to what is differentiated, and
    /// not to the value of a loss.
    ///
    /// The gradient of a loss that depends on the result is that of `(sum of the loss + sum of the terms) / count of
    /// the loss`, as with [`Loss::with_penalty`](super::Loss::with_penalty). The terms do not travel to the loss:
    /// backward begins at them when it reaches this tensor (as in Megatron-LM's `MoEAuxLossAutoScaler`). So they can be
    /// computed in any layer of a model, in a pipeline stage that has no loss, and in a recomputed segment, where they
    /// count once.
    ///
    /// Each term counts once, however it is distributed: a tensor that is whole over an axis is the same on its ranks,
    /// and one that is split over it has different terms there. A loss that does not depend on the result has no
    /// auxiliary loss, and neither has an evaluation. Of a model with pipeline stages, a loss depends on everything
    /// that passes from one stage to the next: a stage cannot know what the later ones read.
    ///
    /// In a [weighted sum](super::Objective) the terms have the weight and the count of the loss. If its losses have
    /// different ones, `with_penalty` states to which the terms belong.
    ///
    /// ```text
    /// let mixed = routing.combine(&self.experts.forward(&rows));
    /// mixed.with_auxiliary_loss(&(routing.load_balancing_loss() * 0.01))
    /// ```
    ///
    /// # Panics
    /// If the terms are computed from another micro-batch. Backward does if its losses have different weights or
    /// counts.
    #[must_use = "an auxiliary loss counts for losses that depend on the tensor that is returned"]
    #[track_caller]
    pub fn with_auxiliary_loss<T: Operand>(self, terms: &T) -> Tensor<S> {
        let varies = <T::Shape as Dims>::VARIES;
        Tensor::from_untyped(self.value().with_auxiliary_loss(terms.operand().value(), varies))
    }
}

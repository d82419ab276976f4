//! Forward passes of micro-batches whose backward passes run later, in any order.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::autograd::{
    LossFactor, MicrobatchPass, PartGradients, PartIdentities, SegmentData, data_of_parts, parts_of,
};
use crate::context::Rank;
use meshwright_backend::Buffer;

use super::terms::Terms;
use super::{Accumulating, DeferredWeightGradients, Gradients, PassLoss, WeightGradients};

/// Forward pass of one micro-batch through a model or a part of it, from an input `X` to an output `Y`. Several can be
/// recorded before the backward of the first one, which pipeline schedules need.
///
/// Gradients do not flow out of a pass by themselves: its input and its output are separated from the operations around
/// it. [`backward`](Self::backward) takes the gradients of the output, or begins with a [loss](Self::add_loss), and
/// returns the gradients of the input, which the pass before takes. The gradients of parameters are added to the
/// [`Gradients`] of the step, in the order of the backward passes.
///
/// A pass that is dropped without backward leaves nothing behind.
///
/// ```
/// use meshwright::backend::cpu::CpuBackend;
/// use meshwright::comm::launch;
/// use meshwright::nn::build;
/// use meshwright::prelude::*;
/// use meshwright::tensor::{ForwardPass, WeightGradients};
///
/// dims! { Batch @ data, Hidden, Ffn }
///
/// #[model]
/// struct Mlp {
///     up: Linear<Hidden, Ffn>,
///     down: Linear<Ffn, Hidden>,
/// }
///
/// let norms = launch(&"dp=2".parse()?, |comms| {
///     let backend = CpuBackend::new(1).map_err(|error| error.to_string())?;
///     let rank = Rank::new(comms, Box::new(backend), 7);
///     let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 8);
///     let mlp = build::<Mlp>(&rank, &sizes).map_err(|error| error.to_string())?;
///     let x = Tensor::<(Batch, Hidden)>::from_fn(&rank, &[2, 4], |index| index[1] as f32);
///
///     let (inner, first) = ForwardPass::record(&rank, &x, |x| mlp.model.up.forward(x).gelu());
///     let (y, mut second) = ForwardPass::record(&rank, &inner, |x| mlp.model.down.forward(x));
///
///     let mut gradients = Gradients::of_passes(&rank);
///     second.add_loss(&y, |y| Loss::mean_of(&(y * y)));
///     let no_unit = WeightGradients::Now { complete: &[] };
///     let (inner_gradients, _) = second.backward(&mut gradients, None, no_unit);
///     let all_units = WeightGradients::Now { complete: &mlp.units };
///     first.backward(&mut gradients, Some(inner_gradients), all_units);
///     Ok::<f64, String>(gradients.complete().reduce().norm())
/// })?;
/// assert!(norms[0] > 0.0 && norms[0] == norms[1]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a recorded pass does nothing until `backward`"]
pub struct ForwardPass<X, Y> {
    pass: MicrobatchPass,
    /// The losses of the pass, if there are any.
    losses: Option<Terms>,
    data: PhantomData<fn(X) -> Y>,
}

/// Gradients of the activations in `X`, the input of a [`ForwardPass`] and the output of the pass before.
pub struct ActivationGradients<X> {
    rank: Rank,
    /// The activations that these are gradients of.
    of: PartIdentities,
    parts: PartGradients,
    /// Factor of the sums of the losses that these are gradients of.
    factor: LossFactor,
    data: PhantomData<fn() -> X>,
}

impl<X: SegmentData, Y: SegmentData> ForwardPass<X, Y> {
    /// Records `body`, and returns its output.
    ///
    /// # Panics
    /// Inside of `rank.evaluate(..)`, of a recomputed segment, of a backward pass or of another `ForwardPass`.
    #[track_caller]
    pub fn record(rank: &Rank, input: &X, body: impl FnOnce(&X) -> Y) -> (Y, ForwardPass<X, Y>) {
        let body = |parts| parts_of(&body(&data_of_parts(parts)));
        let (output, pass) = MicrobatchPass::record(rank, &parts_of(input), body);
        (data_of_parts(output), ForwardPass { pass, losses: None, data: PhantomData })
    }

    /// Adds a loss of `output`, which [`record`](Self::record) has returned, to the pass. The operations of the loss
    /// belong to the pass: a stage that ends with the loss can compute it immediately before its backward, and holds
    /// what it needs for one micro-batch only.
    ///
    /// Losses with weights have the counts of the step, as in [gradient accumulation](super::Loss::weighted_over), and
    /// all losses of a step have weights, or none has.
    ///
    /// # Panics
    /// If `output` is that of another pass.
    #[track_caller]
    pub fn add_loss<L: PassLoss>(&mut self, output: &Y, loss: impl FnOnce(&Y) -> L) {
        let added = self.pass.record_losses(&parts_of(output), |parts| {
            let losses = loss(&data_of_parts(parts)).into_terms();
            losses.record_sums();
            (Vec::new(), losses)
        });
        match &mut self.losses {
            Some(losses) => losses.append(added),
            None => self.losses = Some(added),
        }
    }

    /// Runs the backward of the losses, and of the output from its gradients. Adds the gradients of parameters to
    /// `gradients`. Returns the gradients of the input, which are zeros if none arrived, and the weight gradients if
    /// they are deferred.
    ///
    /// Below ZeRO stage 2, the gradient of a unit is reduced over the ranks after the pass that lists it as complete;
    /// from stage 2 on, after each pass that reaches it.
    ///
    /// # Panics
    /// If there is neither a loss nor a gradient of the output; if a loss of the step has a weight, and another none;
    /// if the gradients belong to another tensor than the output, such as one of another micro-batch, or one computed
    /// from the output between both passes; if the pass has used a tensor of another one otherwise than as its input;
    /// if parameters were changed since the forward pass; or if a unit is reached that was complete before.
    #[track_caller]
    pub fn backward(
        self,
        gradients: &mut Gradients<Accumulating>,
        output_gradients: Option<ActivationGradients<Y>>,
        weights: WeightGradients<'_>,
    ) -> (ActivationGradients<X>, Option<DeferredWeightGradients>) {
        assert!(
            output_gradients.as_ref().is_none_or(|output| self.pass.has_outputs(&output.of)),
            "a `ForwardPass` is given the gradients of another tensor than its output: the input of the pass after it \
             is the output of this one, of the same micro-batch and unchanged"
        );
        let ForwardPass { mut pass, losses, .. } = self;
        let mut factor = output_gradients.as_ref().map(|gradients| gradients.factor);
        if let Some(losses) = losses {
            let (factors, line) = (gradients.count_terms(&losses), Location::caller());
            let own = pass.record_more_losses(|| gradients.record_terms(losses, &factors, line));
            factor = Some(factor.map_or(own, |of_output| of_output.and(own)));
        }
        let factor = factor.unwrap_or(LossFactor::ONE);
        let output_gradients = output_gradients.map(|gradients| gradients.parts);
        let step = gradients.backward_pass();
        let (rank, of) = (gradients.rank().clone(), pass.input_identities());
        let (parts, deferred) = pass.backward(step, output_gradients, factor, weights);
        (ActivationGradients { rank, of, parts, factor, data: PhantomData }, deferred)
    }
}

impl<X> ActivationGradients<X> {
    /// Copies this rank's block of the gradient of each tensor in `X`, row-major, to the host; `None` for tokens.
    pub fn to_local_vecs(&self) -> Vec<Option<Vec<f32>>> {
        let read = |gradient: &Arc<Buffer>| self.rank.read(gradient.view());
        self.parts.iter().map(|gradient| gradient.as_ref().map(read)).collect()
    }
}

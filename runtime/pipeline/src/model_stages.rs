//! The stages of a model as the executor runs them.

use std::collections::HashMap;
use std::sync::Arc;

use meshwright_backend::Buffer;
use meshwright_comm::CommError;
use meshwright_core::__internal::{LossFactor, MicrobatchPass};
use meshwright_core::layout::Dims;
use meshwright_core::nn::{Layer, Module, PartOutput};
use meshwright_core::tensor::{
    Accumulating, DeferredWeightGradients, Gradients, Loss, Metric, Part, SegmentData,
    WeightGradients,
};

use super::StageWork;
use super::boundary::BoundaryShape;
use super::rank_stages::{PP, RankStages};

/// Computes the loss of a micro-batch, given by its index, from the output of the model.
pub(super) type LossFn<'a, M, S> =
    dyn FnMut(&M, &<M as Layer<<M as Module>::In>>::Out, usize) -> Loss<S> + 'a;

/// One training step of the stages of a rank.
pub(super) struct ModelStages<'a, M: Module, S> {
    pub stages: &'a RankStages,
    pub model: &'a M,
    /// The parts of each micro-batch's input.
    pub inputs: &'a [Vec<Part>],
    /// The boundary after each stage but the last, for each micro-batch.
    pub boundaries: &'a [Vec<BoundaryShape>],
    pub loss: &'a mut LossFn<'a, M, S>,
    pub gradients: Gradients<Accumulating>,
    /// Loss of each micro-batch: zero on ranks without the last stage.
    pub losses: Vec<Metric<S>>,
    /// Forward passes whose backward has not run, by stage and micro-batch.
    pub passes: HashMap<(usize, usize), StagePass<M::Out>>,
    pub deferred: HashMap<(usize, usize), DeferredWeightGradients>,
    /// Number of computations of the step that have begun.
    pub begun: usize,
}

/// The forward pass of a stage.
pub(super) struct StagePass<Output> {
    pass: MicrobatchPass,
    /// The output of the model, from the last stage, for the loss.
    output: Option<Output>,
}

impl<M: Module<In: SegmentData>, S: Dims> ModelStages<'_, M, S> {
    /// Runs the next computation of the schedule.
    fn in_action<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let stages = self.stages;
        stages.begin_action(self.begun);
        self.begun += 1;
        let result = stages.in_stage(|| body(self));
        stages.end_action();
        result
    }

    /// Computes the output of a stage, and keeps the pass for its backward.
    fn record_pass(
        &mut self,
        (stage, micro_batch): (usize, usize),
        input: Vec<Arc<Buffer>>,
    ) -> Vec<Arc<Buffer>> {
        let model_input = &self.inputs[micro_batch];
        let rank = self.stages.rank_of_input(model_input);
        let input = match stage.checked_sub(1) {
            None => model_input.clone(),
            Some(before) => self.boundaries[micro_batch][before].parts_of_buffers(input),
        };
        let mut output = None;
        let (sent, pass) = MicrobatchPass::record(&rank, &input, |parts| {
            match self.stages.forward_stage(self.model, stage, parts) {
                PartOutput::Boundary(data) => data.parts,
                PartOutput::Model(result) => {
                    output = Some(result);
                    Vec::new()
                }
            }
        });
        self.passes.insert((stage, micro_batch), StagePass { pass, output });
        let boundary = self.boundaries[micro_batch].get(stage);
        boundary.map_or_else(Vec::new, |boundary| boundary.buffers_of_parts(&sent))
    }

    /// Runs the backward of a pass, which begins with the loss on the last stage.
    fn backpropagate(
        &mut self,
        (stage, micro_batch): (usize, usize),
        output_gradients: Vec<Arc<Buffer>>,
        is_deferred: bool,
    ) -> Vec<Arc<Buffer>> {
        let pass = self.passes.remove(&(stage, micro_batch));
        let StagePass { mut pass, output } = pass.expect("a verified schedule runs forward first");
        let output_gradients = match self.boundaries[micro_batch].get(stage) {
            Some(boundary) => Some(boundary.gradients_of_buffers(output_gradients)),
            None => {
                let output = output.expect("the last stage keeps the output of the model");
                self.record_loss(&mut pass, &output, micro_batch);
                None
            }
        };
        let weights = if is_deferred {
            WeightGradients::Deferred
        } else {
            WeightGradients::Now { complete: self.stages.completed_units(stage, micro_batch) }
        };
        let step = self.gradients.backward_pass();
        let (gradients, deferred) = pass.backward(step, output_gradients, LossFactor::ONE, weights);
        if let Some(deferred) = deferred {
            self.deferred.insert((stage, micro_batch), deferred);
        }
        // Nothing comes before the first stage.
        if stage == 0 { Vec::new() } else { gradients.into_iter().flatten().collect() }
    }

    /// Records the loss of a micro-batch as part of the pass of the last stage. So logits and a gradient of the head's
    /// weight exist for one micro-batch only, however many passes are alive.
    fn record_loss(&mut self, pass: &mut MicrobatchPass, output: &M::Out, micro_batch: usize) {
        let (model, loss, gradients) = (self.model, &mut self.loss, &mut self.gradients);
        let metric = pass.record_losses(&[], |_| {
            let loss = loss(model, output, micro_batch);
            let metric = loss.metric();
            (gradients.record_loss(loss), metric)
        });
        self.losses[micro_batch] = metric.summed_over(PP);
    }
}

impl<M: Module<In: SegmentData>, S: Dims> StageWork for ModelStages<'_, M, S> {
    type Error = CommError;

    fn run_forward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        input: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        Ok(self.in_action(|own| own.record_pass((stage, micro_batch), input)))
    }

    fn run_backward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        output_gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        let is_deferred = false;
        Ok(self.in_action(|own| {
            own.backpropagate((stage, micro_batch), output_gradients, is_deferred)
        }))
    }

    fn run_backward_input(
        &mut self,
        stage: usize,
        micro_batch: usize,
        output_gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        let is_deferred = true;
        Ok(self.in_action(|own| {
            own.backpropagate((stage, micro_batch), output_gradients, is_deferred)
        }))
    }

    fn run_backward_weight(&mut self, stage: usize, micro_batch: usize) -> Result<(), CommError> {
        let deferred = self.deferred.remove(&(stage, micro_batch));
        let deferred = deferred.expect("a verified schedule runs the input part first");
        self.in_action(|own| {
            deferred.compute_gradients(own.stages.completed_units(stage, micro_batch))
        });
        Ok(())
    }

    /// Does nothing: FSDP units are gathered one by one, as their values are read.
    fn unshard(&mut self, _: usize) -> Result<(), CommError> {
        Ok(())
    }

    /// Does nothing, as [`unshard`](Self::unshard).
    fn reshard(&mut self, _: usize) -> Result<(), CommError> {
        Ok(())
    }

    /// Does nothing: the reduction of each unit starts as soon as its gradient is complete.
    fn reduce_gradients(&mut self, _: usize) -> Result<(), CommError> {
        Ok(())
    }
}

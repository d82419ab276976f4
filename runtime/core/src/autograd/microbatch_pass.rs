//! Forward passes of micro-batches on tapes of their own, whose backward passes run later, in any order.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::context::{Rank, ZeroStage};
use crate::fsdp::{BackwardPass, CompletedUnits, StepPhase, Unit};
use meshwright_backend::{Buffer, Category, DType};

use super::backward::{in_backward_phase, run_micro_batch};
use super::segment_data::{Part, compute_activations};
use super::tape::{
    Dependencies, LossFactor, LossSeed, NodeId, Tape, WeightGradientJob, backpropagate_pass,
    run_weight_gradient_jobs,
};
use super::value::Value;

/// Forward pass of one micro-batch through a part of a model, on a tape of its own: several can be recorded before the
/// backward of the first one. Dropped without backward, it leaves nothing behind.
#[must_use = "a recorded pass does nothing until `backward`"]
pub struct MicrobatchPass {
    rank: Rank,
    tape: Tape,
    /// The leaf of the tape of each part of the input; `None` for token ids.
    inputs: Vec<Option<InputLeaf>>,
    /// The operation that has computed each part of the output; `None` for token ids.
    outputs: Vec<Option<OutputRoot>>,
    /// The operations that have computed the losses of the output, if there are any.
    losses: Option<Vec<NodeId>>,
}

/// An activation that enters the pass.
struct InputLeaf {
    gradient: Rc<Cell<Option<Arc<Buffer>>>>,
    data: Weak<Buffer>,
    dtype: DType,
    len: usize,
}

/// An activation that leaves the pass.
struct OutputRoot {
    node: Option<NodeId>,
    /// The numbers of the output, which are not kept for the backward of later operations.
    data: Weak<Buffer>,
    dtype: DType,
    len: usize,
}

/// Identity of the numbers of each part of an input or output; `None` for token ids.
pub(crate) type PartIdentities = Vec<Option<Weak<Buffer>>>;

/// Gradients of the parts of an input or output: `None` for token ids, and for outputs that no loss depends on.
pub type PartGradients = Vec<Option<Arc<Buffer>>>;

/// Time at which the backward of a [`ForwardPass`](crate::tensor::ForwardPass) computes the gradients of weights.
#[derive(Clone, Copy)]
pub enum WeightGradients<'a> {
    /// Weight gradients are computed in the backward pass.
    Now {
        /// Units whose gradients of the step are complete after it: their reduction over the ranks starts.
        complete: &'a [Rc<Unit>],
    },
    /// Weight gradients are computed later, by [`DeferredWeightGradients::compute_gradients`], which zero-bubble
    /// pipeline schedules use to fill idle time. Deferred are the weights of matmuls with the biases that are fused
    /// into them, and the weights of embeddings. Other gradients are computed in the backward pass. So are the
    /// gradients of all weights inside of recomputed segments, and at ZeRO stages 2 and 3, where they would need memory
    /// until then.
    Deferred,
}

impl MicrobatchPass {
    /// Records `body`, and returns its output. Gradients flow into `inputs` and not beyond, and none flows back from
    /// the output: [`backward`](Self::backward) takes its gradients.
    ///
    /// # Panics
    /// Inside of another pass, a backward pass, a recomputed segment or an evaluation.
    #[track_caller]
    #[doc(hidden)]
    pub fn record(
        rank: &Rank,
        inputs: &[Part],
        body: impl FnOnce(Vec<Part>) -> Vec<Part>,
    ) -> (Vec<Part>, MicrobatchPass) {
        check_no_other_pass(rank);
        // Deferred operations of the inputs are recorded on the tape that they belong to.
        compute_activations(inputs);
        let mut tape = Tape::default();
        let (leaves, outputs) = rank.with_tape(&mut tape, || {
            let leaves: Vec<_> =
                inputs.iter().map(|part| part.activation().map(make_leaf)).collect();
            let parts = inputs.iter().zip(&leaves).map(|(part, leaf)| {
                let node = leaf.as_ref().map(|(node, _)| node.clone());
                part.map_activation(|value| value.made_by(node))
            });
            let outputs = body(parts.collect());
            compute_activations(&outputs);
            (leaves, outputs)
        });
        let pass = MicrobatchPass {
            rank: rank.clone(),
            tape,
            inputs: leaves.into_iter().map(|leaf| Some(leaf?.1)).collect(),
            outputs: outputs.iter().map(|part| part.activation().map(OutputRoot::new)).collect(),
            losses: None,
        };
        let outputs = outputs.iter().map(|part| part.map_activation(|value| value.made_by(None)));
        (outputs.collect(), pass)
    }

    /// Records losses of the output, so that they are part of the pass: `body` takes `outputs`, which were returned by
    /// [`record`](Self::record), and returns the operations that have computed the losses, and a result.
    ///
    /// # Panics
    /// If `outputs` belong to another pass.
    #[track_caller]
    #[doc(hidden)]
    pub fn record_losses<T>(
        &mut self,
        outputs: &[Part],
        body: impl FnOnce(Vec<Part>) -> (Vec<NodeId>, T),
    ) -> T {
        check_no_other_pass(&self.rank);
        let identity = |value: &Value| Arc::downgrade(&value.compute_with_node().data);
        let identities = outputs.iter().map(|part| part.activation().map(identity)).collect();
        assert!(
            self.has_outputs(&identities),
            "a loss is added to a `ForwardPass`, but reads the output of another `ForwardPass`"
        );
        let node = |root: &Option<OutputRoot>| root.as_ref().and_then(|root| root.node.clone());
        let parts = outputs.iter().zip(&self.outputs);
        let parts =
            parts.map(|(part, root)| part.map_activation(|value| value.made_by(node(root))));
        let parts = parts.collect();
        self.record_more_losses(|| body(parts))
    }

    /// Records further losses, of values that the pass has computed: `body` returns the operations that have computed
    /// them, and a result.
    #[track_caller]
    pub(crate) fn record_more_losses<T>(&mut self, body: impl FnOnce() -> (Vec<NodeId>, T)) -> T {
        check_no_other_pass(&self.rank);
        let (losses, result) = self.rank.with_tape(&mut self.tape, body);
        self.losses.get_or_insert_default().extend(losses);
        result
    }

    /// Returns the identities of the inputs.
    pub(crate) fn input_identities(&self) -> PartIdentities {
        self.inputs.iter().map(|leaf| Some(leaf.as_ref()?.data.clone())).collect()
    }

    /// Returns true if the parts with these identities are the outputs.
    pub(crate) fn has_outputs(&self, parts: &PartIdentities) -> bool {
        let is_same = |(root, part): (&Option<OutputRoot>, &Option<Weak<Buffer>>)| {
            let data = root.as_ref().map(|root| &root.data);
            data.map(Weak::as_ptr) == part.as_ref().map(Weak::as_ptr)
        };
        parts.len() == self.outputs.len() && self.outputs.iter().zip(parts).all(is_same)
    }

    /// Runs the backward of the recorded losses, and of the outputs from their gradients, if given. The sums of the
    /// losses, those that the outputs lead to included, have the factor `factor`. Adds the gradients of parameters to
    /// the gradients of `step`. Returns the gradients of the inputs, zeros if none arrived, and the deferred weight
    /// gradients.
    ///
    /// # Panics
    /// If there are neither losses nor gradients of the outputs, a gradient does not have the dtype and the length of
    /// its output, or the pass has used a tensor of another one.
    #[track_caller]
    #[doc(hidden)]
    pub fn backward(
        mut self,
        step: &Rc<BackwardPass>,
        output_gradients: Option<PartGradients>,
        factor: LossFactor,
        weights: WeightGradients<'_>,
    ) -> (PartGradients, Option<DeferredWeightGradients>) {
        let rank = &self.rank;
        check_no_other_pass(rank);
        step.check_valid();
        assert!(
            output_gradients.is_some() || self.losses.is_some(),
            "the backward of a pass needs gradients of its output, or a loss: pass output gradients, or call `add_loss`"
        );
        let output_gradients = output_gradients.unwrap_or_else(|| vec![None; self.outputs.len()]);
        assert_eq!(output_gradients.len(), self.outputs.len(), "the parts of the output of a pass");
        let seeds = self.outputs.into_iter().zip(output_gradients);
        let seeds = seeds.filter_map(|(root, gradient)| root?.seed(gradient?)).collect();
        let (completed, is_deferred) = match weights {
            WeightGradients::Now { complete } => (CompletedUnits::Listed(complete.to_vec()), false),
            WeightGradients::Deferred => (CompletedUnits::None, true),
        };
        // The gradient of a micro-batch is complete after it, if the sum of micro-batches is kept apart.
        let is_complete =
            rank.zero_stage() >= ZeroStage::Gradients || rank.gradient_dtype() != DType::F32;
        let jobs = (is_deferred && !is_complete).then(Vec::new);
        let losses = self.losses.unwrap_or_default();
        let jobs = rank.with_tape(&mut self.tape, || {
            run_micro_batch(rank, step, completed, || {
                in_backward_phase(rank, || {
                    let seed = LossSeed::new(rank, factor);
                    backpropagate_pass(rank, losses, seeds, seed, jobs)
                })
            })
        });
        let gradients = self.inputs.iter().map(|leaf| Some(leaf.as_ref()?.gradient_or_zeros(rank)));
        let gradients = gradients.collect();
        let deferred = is_deferred.then(|| {
            step.begin_deferred();
            DeferredWeightGradients { rank: rank.clone(), step: Rc::clone(step), jobs }
        });
        (gradients, deferred)
    }
}

/// Records a leaf for an activation that enters a pass.
fn make_leaf(value: &Value) -> (NodeId, InputLeaf) {
    let gradient = Rc::new(Cell::new(None));
    let arrived = Rc::clone(&gradient);
    let node = value
        .rank()
        .tape()
        .record(Dependencies::default(), move |_, gradient| arrived.set(Some(gradient)));
    let data = value.compute_with_node().data;
    let (dtype, len) = (data.dtype(), data.len());
    (node, InputLeaf { gradient, data: Arc::downgrade(&data), dtype, len })
}

impl InputLeaf {
    fn gradient_or_zeros(&self, rank: &Rank) -> Arc<Buffer> {
        self.gradient.take().unwrap_or_else(|| {
            Arc::new(rank.allocator().zeros(self.dtype, self.len, Category::Activations))
        })
    }
}

impl OutputRoot {
    fn new(value: &Value) -> OutputRoot {
        let node = value.recorded_node();
        let data = value.compute_with_node().data;
        OutputRoot { node, data: Arc::downgrade(&data), dtype: data.dtype(), len: data.len() }
    }

    /// Returns the operation that has computed the output, and its gradient.
    #[track_caller]
    fn seed(self, gradient: Arc<Buffer>) -> Option<(NodeId, Arc<Buffer>)> {
        assert!(
            (gradient.dtype(), gradient.len()) == (self.dtype, self.len),
            "the gradient of an output of a pass has {} elements of {:?}, and the output {} of {:?}",
            gradient.len(),
            gradient.dtype(),
            self.len,
            self.dtype
        );
        Some((self.node?, gradient))
    }
}

/// Checks that the rank records, and that no other pass is being recorded or run backward.
#[track_caller]
fn check_no_other_pass(rank: &Rank) {
    let is_between = rank.records_operations()
        && rank.prefetcher().phase() == StepPhase::Forward
        && rank.running_backward().is_none()
        && rank.segments().is_none_open()
        && !rank.tape().is_of_pass();
    assert!(
        is_between,
        "a `ForwardPass` is recorded, or run backward, inside of `rank.evaluate(..)`, a recomputed segment, a backward \
         pass or another `ForwardPass`: do it outside of them"
    );
}

/// Weight gradients of a [`ForwardPass`](crate::tensor::ForwardPass) that its backward has
/// [deferred](WeightGradients::Deferred).
#[must_use = "the step lacks the gradients of these weights until `compute_gradients`"]
pub struct DeferredWeightGradients {
    rank: Rank,
    step: Rc<BackwardPass>,
    jobs: Vec<WeightGradientJob>,
}

impl DeferredWeightGradients {
    /// Computes the gradients, in the order of backward. The gradients of `complete` are then complete in this step:
    /// their reduction over the ranks starts.
    ///
    /// # Panics
    /// If another backward has overwritten the gradients of the step, or a weight was changed since the forward pass.
    #[track_caller]
    pub fn compute_gradients(self, complete: &[Rc<Unit>]) {
        let DeferredWeightGradients { rank, step, jobs } = self;
        step.check_valid();
        run_micro_batch(&rank, &step, CompletedUnits::Listed(complete.to_vec()), || {
            run_weight_gradient_jobs(&rank, jobs);
        });
        step.end_deferred();
    }
}

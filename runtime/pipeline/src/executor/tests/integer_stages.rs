//! Stages that compute on integers: any swapped, lost or doubled message gives other results.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::schedule::{Action, Compute, Costs, Message, MessageKind, Work};
use crate::{MessagePart, StageWork};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType};

use super::TestError;

/// Elements of a part of a boundary.
pub const WIDTH: usize = 8;
/// Bytes of the activation, and of the gradient, of a boundary.
pub const ACTIVATION_BYTES: u64 = 4 * (2 * WIDTH as u64 + 1);
pub const GRADIENT_BYTES: u64 = 4 * (WIDTH as u64 + 1);

/// Values and ids of equal size, and a virtual time. Only values have a gradient.
pub fn boundary_parts(message: Message) -> Vec<MessagePart> {
    let part = |len| MessagePart { dtype: DType::U32, len };
    match message.kind() {
        MessageKind::Activation => vec![part(WIDTH), part(WIDTH), part(1)],
        MessageKind::Gradient => vec![part(WIDTH), part(1)],
    }
}

type Values = [u32; WIDTH];

/// Runs before each computation: a delay, or a failure.
type BeforeCompute = Box<dyn FnMut(Compute) -> Result<(), TestError>>;

/// The stages of a rank.
pub struct IntegerStages {
    stages: usize,
    allocator: Arc<CachingAllocator>,
    pub before_compute: BeforeCompute,
    /// Costs in whole units of virtual time.
    pub costs: Costs,
    /// Virtual time of this rank: a computation begins when the rank and its input are ready.
    clock: u32,
    saved: HashMap<(usize, usize), (Values, Values)>,
    /// Output gradients whose weight part is to come.
    pending: HashMap<(usize, usize), Values>,
    results: StageResults,
}

/// Results of a step, of one or several ranks.
#[derive(Default)]
pub struct StageResults {
    /// The sum of weight gradients of each stage.
    weights: BTreeMap<usize, u32>,
    /// The gradients of the inputs of the first stage.
    input_gradients: BTreeMap<usize, Values>,
    /// Reductions of gradients, and gathers and releases of parameters.
    pub other_actions: Vec<Action>,
    /// Virtual time at the end, and time of computations.
    pub end: u32,
    pub busy: u32,
    pub most_live: usize,
    pub most_pending: usize,
    /// Addresses of the inputs and outputs of forward passes.
    pub inputs: BTreeMap<(usize, usize), usize>,
    pub outputs: BTreeMap<(usize, usize), usize>,
}

fn mix(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    (value ^ (value >> 15)).wrapping_mul(0x846c_a68b) | 1
}

fn model_input(micro_batch: usize) -> (Values, Values) {
    let of = |seed: usize| std::array::from_fn(|i| mix((seed + 977 * micro_batch + i) as u32));
    (of(1), of(1_000_003))
}

fn stage_forward(stage: usize, (values, ids): (Values, Values)) -> (Values, Values) {
    let factor = 2 * stage as u32 + 3;
    let values = std::array::from_fn(|i| values[i].wrapping_mul(factor).wrapping_add(ids[i]));
    (values, ids.map(|id| id.rotate_left(stage as u32 + 1)))
}

fn loss_gradient(output: Values, micro_batch: usize) -> Values {
    output.map(|value| value.wrapping_mul(5).wrapping_add(mix(micro_batch as u32)))
}

fn stage_backward(stage: usize, input: Values, gradient: Values) -> Values {
    let factor = 2 * stage as u32 + 5;
    std::array::from_fn(|i| gradient[i].wrapping_mul(factor).wrapping_add(input[i]))
}

/// Does not depend on the order in which micro-batches are added, but on which gradient meets which input.
fn weight_gradient(micro_batch: usize, input: Values, gradient: Values) -> u32 {
    let seed = mix(micro_batch as u32);
    let terms = (0..WIDTH).map(|i| mix(input[i] ^ gradient[i].rotate_left(7) ^ seed));
    terms.fold(0, u32::wrapping_add)
}

impl IntegerStages {
    pub fn new(stages: usize) -> IntegerStages {
        IntegerStages {
            stages,
            allocator: CachingAllocator::new(),
            before_compute: Box::new(|_| Ok(())),
            costs: Costs::default(),
            clock: 0,
            saved: HashMap::new(),
            pending: HashMap::new(),
            results: StageResults::default(),
        }
    }

    pub fn into_results(self) -> StageResults {
        assert!(self.saved.is_empty() && self.pending.is_empty(), "a backward pass is missing");
        StageResults { end: self.clock, ..self.results }
    }

    fn buffer(&self, values: &[u32]) -> Arc<Buffer> {
        Arc::new(self.allocator.copy_of(values, Category::Activations))
    }

    /// Advances the clock by the cost of a computation whose inputs end with their virtual time.
    fn advance(&mut self, compute: Compute, input: &[Arc<Buffer>]) -> Result<(), TestError> {
        (self.before_compute)(compute)?;
        let ready = input.last().map_or(0, |time| time.typed::<u32>()[0]);
        let cost = self.costs.cost_of(compute.work) as u32;
        self.clock = self.clock.max(ready) + cost;
        self.results.busy += cost;
        let StageResults { most_live, most_pending, .. } = &mut self.results;
        let is_new = usize::from(compute.work == Work::Forward);
        *most_live = (self.saved.len() - self.pending.len() + is_new).max(*most_live);
        *most_pending = (self.saved.len() + is_new).max(*most_pending);
        Ok(())
    }

    /// The input part of a backward pass: the gradients of the input, and the gradient that the weight part needs.
    fn input_part(
        &mut self,
        (stage, micro_batch): (usize, usize),
        gradients: &[Arc<Buffer>],
    ) -> (Vec<Arc<Buffer>>, Values) {
        let (values, ids) = self.saved[&(stage, micro_batch)];
        let gradient = match gradients {
            [] => loss_gradient(stage_forward(stage, (values, ids)).0, micro_batch),
            [gradient, ..] => values_of(gradient),
        };
        let of_input = stage_backward(stage, values, gradient);
        if stage == 0 {
            let earlier = self.results.input_gradients.insert(micro_batch, of_input);
            assert!(earlier.is_none(), "micro-batch {micro_batch} comes a second time");
            return (Vec::new(), gradient);
        }
        (vec![self.buffer(&of_input), self.buffer(&[self.clock])], gradient)
    }

    fn weight_part(&mut self, (stage, micro_batch): (usize, usize), gradient: Values) {
        let (values, _) = self.saved.remove(&(stage, micro_batch)).expect("a forward pass");
        let sum = self.results.weights.entry(stage).or_default();
        *sum = sum.wrapping_add(weight_gradient(micro_batch, values, gradient));
    }
}

fn values_of(buffer: &Buffer) -> Values {
    buffer.typed::<u32>().try_into().expect("the width of a boundary")
}

fn address_of(buffers: &[Arc<Buffer>]) -> usize {
    buffers.first().map_or(0, |first| first.view().address() as usize)
}

impl StageWork for IntegerStages {
    type Error = TestError;

    fn run_forward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        input: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, TestError> {
        self.advance(Compute::new(Work::Forward, stage, micro_batch), &input)?;
        let values = match &input[..] {
            [] => model_input(micro_batch),
            [values, ids, _] => (values_of(values), values_of(ids)),
            _ => panic!("{} parts", input.len()),
        };
        self.results.inputs.insert((stage, micro_batch), address_of(&input));
        let earlier = self.saved.insert((stage, micro_batch), values);
        assert!(earlier.is_none(), "micro-batch {micro_batch} comes a second time");
        if stage + 1 == self.stages {
            return Ok(Vec::new());
        }
        let (values, ids) = stage_forward(stage, values);
        let output = vec![self.buffer(&values), self.buffer(&ids), self.buffer(&[self.clock])];
        self.results.outputs.insert((stage, micro_batch), address_of(&output));
        Ok(output)
    }

    fn run_backward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, TestError> {
        self.advance(Compute::new(Work::Backward, stage, micro_batch), &gradients)?;
        let (of_input, gradient) = self.input_part((stage, micro_batch), &gradients);
        self.weight_part((stage, micro_batch), gradient);
        Ok(of_input)
    }

    fn run_backward_input(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, TestError> {
        self.advance(Compute::new(Work::BackwardInput, stage, micro_batch), &gradients)?;
        let (of_input, gradient) = self.input_part((stage, micro_batch), &gradients);
        self.pending.insert((stage, micro_batch), gradient);
        Ok(of_input)
    }

    fn run_backward_weight(&mut self, stage: usize, micro_batch: usize) -> Result<(), TestError> {
        self.advance(Compute::new(Work::BackwardWeight, stage, micro_batch), &[])?;
        let gradient = self.pending.remove(&(stage, micro_batch)).expect("an input part");
        self.weight_part((stage, micro_batch), gradient);
        Ok(())
    }

    fn unshard(&mut self, stage: usize) -> Result<(), TestError> {
        self.results.other_actions.push(Action::Unshard(stage));
        Ok(())
    }

    fn reshard(&mut self, stage: usize) -> Result<(), TestError> {
        self.results.other_actions.push(Action::Reshard(stage));
        Ok(())
    }

    fn reduce_gradients(&mut self, stage: usize) -> Result<(), TestError> {
        self.results.other_actions.push(Action::ReduceGrad(stage));
        Ok(())
    }
}

impl StageResults {
    /// Adds the results of the stages of another rank.
    pub fn merge(&mut self, other: StageResults) {
        self.weights.extend(other.weights);
        self.input_gradients.extend(other.input_gradients);
        self.other_actions.extend(other.other_actions);
    }

    /// Compares the results of all ranks with the results of a loop over micro-batches and stages.
    pub fn check_against_reference(&self, stages: usize, micro_batches: usize) {
        let mut weights = BTreeMap::new();
        let mut input_gradients = BTreeMap::new();
        for micro_batch in 0..micro_batches {
            let mut inputs = vec![model_input(micro_batch)];
            for stage in 0..stages {
                inputs.push(stage_forward(stage, inputs[stage]));
            }
            let mut gradient = loss_gradient(inputs[stages].0, micro_batch);
            for stage in (0..stages).rev() {
                let sum: &mut u32 = weights.entry(stage).or_default();
                *sum = sum.wrapping_add(weight_gradient(micro_batch, inputs[stage].0, gradient));
                gradient = stage_backward(stage, inputs[stage].0, gradient);
            }
            input_gradients.insert(micro_batch, gradient);
        }
        assert_eq!(self.weights, weights);
        assert_eq!(self.input_gradients, input_gradients);
        for stage in 0..stages {
            let reduction = Action::ReduceGrad(stage);
            let count = self.other_actions.iter().filter(|action| **action == reduction).count();
            assert_eq!(count, 1, "{reduction}");
        }
    }
}

//! Pipeline steps over memory of a device whose queues run in a random order.

use std::collections::HashMap;
use std::sync::Arc;

use meshwright::backend::{Buffer, CachingAllocator, Category, DType, ReduceOp, StreamKind};
use meshwright::comm::{CommError, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright::pipeline::{MessagePart, PipelineExecutor, StageWork};
use meshwright::schedule::{Schedule, ScheduleKind, lower_schedule, verify};

use super::machine::Machine;
use super::meter_of;

const PP: AxisSet = AxisSet::of(AxisId::Pp);
const LEN: usize = 700;
const MICRO_BATCHES: usize = 4;

/// Stages that add on the device: forward a constant, backward their input. The host reads no result.
struct AddingStages {
    stages: usize,
    allocator: Arc<CachingAllocator>,
    saved: HashMap<(usize, usize), Arc<Buffer>>,
    pending: HashMap<(usize, usize), Arc<Buffer>>,
    /// Depend on the order of micro-batches.
    weights: HashMap<usize, Arc<Buffer>>,
}

fn term(stage: usize) -> f32 {
    10.0 * (stage + 1) as f32
}

impl AddingStages {
    fn filled(&self, value: f32) -> Arc<Buffer> {
        Arc::new(self.allocator.copy_of(&vec![value; LEN], Category::Activations))
    }

    fn sum(&self, terms: &[&Buffer]) -> Arc<Buffer> {
        let mut sum = self.allocator.alloc(DType::F32, LEN, Category::Activations);
        let sources: Vec<*const u8> = terms.iter().map(|term| term.view().address()).collect();
        let device = self.allocator.device().expect("an allocator of the machine");
        let dst = sum.view_mut().address();
        // SAFETY: all buffers have this length, live until the work is queued, and are freed in the order of the queue.
        unsafe {
            device.combine(StreamKind::Compute, ReduceOp::Sum, DType::F32, dst, &sources, LEN);
        }
        Arc::new(sum)
    }

    fn input_part(&self, at: (usize, usize), gradients: &[Arc<Buffer>]) -> Arc<Buffer> {
        let input = &self.saved[&at];
        let output;
        let gradient = match gradients {
            [gradient] => gradient,
            _ => {
                output = self.sum(&[input, &self.filled(term(at.0))]);
                &output
            }
        };
        self.sum(&[gradient, input])
    }

    fn weight_part(&mut self, at: (usize, usize), gradient: &Buffer) {
        self.saved.remove(&at);
        let sum = match self.weights.get(&at.0) {
            Some(earlier) => self.sum(&[earlier, earlier, gradient]),
            None => self.sum(&[gradient]),
        };
        self.weights.insert(at.0, sum);
    }
}

impl StageWork for AddingStages {
    type Error = CommError;

    fn run_forward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        mut input: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        let input = input.pop().unwrap_or_else(|| self.filled((micro_batch + 1) as f32));
        let output = self.sum(&[&input, &self.filled(term(stage))]);
        self.saved.insert((stage, micro_batch), input);
        Ok((stage + 1 < self.stages).then_some(output).into_iter().collect())
    }

    fn run_backward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        let of_input = self.run_backward_input(stage, micro_batch, gradients)?;
        self.run_backward_weight(stage, micro_batch)?;
        Ok(of_input)
    }

    fn run_backward_input(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, CommError> {
        let of_input = self.input_part((stage, micro_batch), &gradients);
        self.pending.insert((stage, micro_batch), Arc::clone(&of_input));
        Ok((stage > 0).then_some(of_input).into_iter().collect())
    }

    fn run_backward_weight(&mut self, stage: usize, micro_batch: usize) -> Result<(), CommError> {
        let gradient = self.pending.remove(&(stage, micro_batch)).expect("an input part");
        self.weight_part((stage, micro_batch), &gradient);
        Ok(())
    }

    fn unshard(&mut self, _: usize) -> Result<(), CommError> {
        unreachable!("the schedules do not gather parameters")
    }

    fn reshard(&mut self, _: usize) -> Result<(), CommError> {
        unreachable!("the schedules do not gather parameters")
    }

    fn reduce_gradients(&mut self, _: usize) -> Result<(), CommError> {
        Ok(())
    }
}

/// The weights of each stage, computed in one loop.
fn reference(stages: usize) -> Vec<f32> {
    let mut weights = vec![0.0; stages];
    for micro_batch in 0..MICRO_BATCHES {
        let mut inputs = vec![(micro_batch + 1) as f32];
        (0..stages).for_each(|stage| inputs.push(inputs[stage] + term(stage)));
        let mut gradient = inputs[stages];
        for stage in (0..stages).rev() {
            gradient += inputs[stage];
            weights[stage] = 2.0 * weights[stage] + gradient;
        }
    }
    weights
}

/// A buffer that is sent, received or freed too early shows in the weights.
#[test]
fn pipeline_steps_match_the_reference() {
    for (seed, kind) in (0..5).flat_map(|seed| ScheduleKind::ALL.map(|kind| (seed, kind))) {
        let ranks = 2 + seed as usize % 2;
        let schedule = kind.generate(ranks, kind.default_chunks(), MICRO_BATCHES).unwrap();
        let lowered = lower_schedule(&schedule, seed as usize % 3);
        let stages = lowered.stages();
        // A name stands for one lookahead.
        let schedule = Arc::new(verify(&Schedule { kind: None, ..lowered }).unwrap());
        let machine = Machine::new(seed, None);
        let mesh = MeshShape::new([(AxisId::Pp, ranks)]).unwrap();
        let weights = launch(&mesh, |comms| {
            let allocator = meter_of(&machine, comms.rank());
            let part = |_| vec![MessagePart { dtype: DType::F32, len: LEN }];
            let executor = PipelineExecutor::new(&comms, &allocator, &schedule);
            let executor = executor.unwrap_or_else(|error| panic!("{error}"));
            let parts = executor.agree_on_parts(part).unwrap_or_else(|error| panic!("{error}"));
            let (saved, pending, weights) = Default::default();
            let allocator = Arc::clone(&allocator);
            let mut work = AddingStages { stages, allocator, saved, pending, weights };
            let wait = executor.run_step(&parts, &mut work)?;
            // Results are read when all ranks have queued their work.
            comms.group(PP).barrier(&Site::new("end"))?;
            assert!(wait.total().is_zero(), "no time passes on this device");
            let read = |(stage, sum): (&usize, &Arc<Buffer>)| (*stage, sum.view().to_vec::<f32>());
            Ok::<_, CommError>(work.weights.iter().map(read).collect::<Vec<_>>())
        });
        let weights = weights.unwrap_or_else(|error| panic!("{kind}, seed {seed}: {error}"));
        let expected = reference(stages);
        assert_eq!(weights.iter().flatten().count(), stages);
        for (stage, values) in weights.iter().flatten() {
            let is_right = values.iter().all(|value| *value == expected[*stage]);
            assert!(is_right, "{kind}, seed {seed}, stage {stage}: {values:?}");
        }
    }
}

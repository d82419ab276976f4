//! Evaluation: one input through all stages.

use std::sync::Arc;

use crate::schedule::Schedule;
use crate::{MessagePart, PipelineExecutor};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType};
use meshwright_comm::launch;

use super::integer_stages::boundary_parts;
use super::{IntegerStages, TestError, mesh, named_schedules, verified};

/// Evaluates inputs of other lengths than training steps have, before and after a step.
fn evaluate(schedule: &Schedule) -> Vec<Vec<Option<u32>>> {
    let verified = verified(schedule);
    let outputs = launch(&mesh(schedule.ranks.len()), |comms| {
        let allocator = CachingAllocator::new();
        let executor = PipelineExecutor::new(&comms, &allocator, &verified)?;
        let step_parts = executor.agree_on_parts(boundary_parts)?;
        let mut outputs = Vec::new();
        for len in [3, 1, 100] {
            let parts = |_| vec![MessagePart { dtype: DType::U32, len }; 2];
            let mut visited = Vec::new();
            let output = executor.evaluate::<TestError>(parts, |stage, input| {
                visited.push(stage);
                let [values, ids] = match &input[..] {
                    [] => [vec![7; len], vec![len as u32; len]],
                    [values, ids] => [values, ids].map(|part| part.typed::<u32>().to_vec()),
                    _ => panic!("{} parts", input.len()),
                };
                let factor = 2 * stage as u32 + 3;
                let values: Vec<u32> =
                    values.iter().zip(&ids).map(|(v, id)| v.wrapping_mul(factor) + id).collect();
                let buffer = |values: &[u32]| -> Arc<Buffer> {
                    Arc::new(allocator.copy_of(values, Category::Activations))
                };
                Ok(vec![buffer(&values), buffer(&ids)])
            })?;
            assert!(visited.is_sorted());
            outputs.push(output.map(|parts| {
                let values = parts[0].typed::<u32>();
                assert!(values.len() == len && values.iter().all(|value| *value == values[0]));
                values[0]
            }));
            executor.run_step(&step_parts, &mut IntegerStages::new(schedule.stages()))?;
        }
        Ok::<_, TestError>(outputs)
    });
    outputs.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn last_stage_has_the_output() {
    for schedule in (1..=3).flat_map(named_schedules) {
        let outputs = evaluate(&schedule);
        let expected = |len: u32| {
            (0..schedule.stages() as u32).fold(7u32, |x, stage| x.wrapping_mul(2 * stage + 3) + len)
        };
        let last = *schedule.placement.last().unwrap();
        for (rank, outputs) in outputs.iter().enumerate() {
            let expected = [3, 1, 100].map(|len| (rank == last).then(|| expected(len)));
            assert_eq!(*outputs, expected, "rank {rank} of {schedule:?}");
        }
    }
}

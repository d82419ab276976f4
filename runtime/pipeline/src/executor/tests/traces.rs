//! Spans of computations and receives in a trace, and the time waited for messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::PipelineExecutor;
use crate::schedule::tests::named;
use crate::schedule::{Action, ScheduleKind};
use meshwright_backend::CachingAllocator;
use meshwright_comm::trace::Tracer;
use meshwright_comm::{LaunchOptions, launch_with};

use super::integer_stages::boundary_parts;
use super::{IntegerStages, TestError, mesh, verified};

/// The names of the spans on the lane of each rank's main thread, in the order of their ends.
fn span_names(tracer: &Tracer) -> BTreeMap<u64, Vec<String>> {
    let mut file = Vec::new();
    tracer.write_to(&mut file).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for event in file["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let of_rank = names.entry(event["pid"].as_u64().unwrap()).or_default();
            of_rank.push(event["name"].as_str().unwrap().to_owned());
        }
    }
    names
}

#[test]
fn computations_and_receives_have_spans() {
    let tracer = Tracer::new();
    let options = LaunchOptions { tracer: Some(Arc::clone(&tracer)), ..LaunchOptions::default() };
    let schedule = verified(&named(ScheduleKind::ZeroBubbleH1, 2, 4));
    let programs = launch_with(&options, &mesh(2), |comms| {
        let allocator = CachingAllocator::new();
        let executor = PipelineExecutor::new(&comms, &allocator, &schedule)?;
        let parts = executor.agree_on_parts(boundary_parts)?;
        executor.run_step(&parts, &mut IntegerStages::new(2))?;
        Ok::<_, TestError>(executor.program().ranks[executor.rank()].clone())
    });
    let programs = programs.unwrap_or_else(|error| panic!("{error}"));
    let names = span_names(&tracer);
    for (rank, actions) in programs.iter().enumerate() {
        let computes = actions.iter().flat_map(|action| action.computes());
        let expected = computes
            .map(|next| format!("{} {}.{}", next.work.letter(), next.stage, next.micro_batch));
        let names = &names[&(rank as u64)];
        let is_compute =
            |name: &&String| matches!(name.split(' ').next(), Some("F" | "B" | "I" | "W"));
        let found: Vec<&String> = names.iter().filter(is_compute).collect();
        assert_eq!(found, expected.collect::<Vec<_>>().iter().collect::<Vec<_>>());
        for action in actions {
            if let Action::Recv(message) = action {
                let name = format!("recv {}.{}", message.to_stage(), message.micro_batch());
                assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{name}");
            }
        }
    }
}

/// A rank that waits for a slow one has waited; one that never waits for a message has not.
#[test]
fn waits_are_measured() {
    let schedule = verified(&named(ScheduleKind::GPipe, 2, 1));
    let waits = launch_with(&LaunchOptions::default(), &mesh(2), |comms| {
        let allocator = CachingAllocator::new();
        let executor = PipelineExecutor::new(&comms, &allocator, &schedule)?;
        let parts = executor.agree_on_parts(boundary_parts)?;
        let mut stages = IntegerStages::new(2);
        let is_slow = comms.rank() == 0;
        stages.before_compute = Box::new(move |_| {
            if is_slow {
                sleep(Duration::from_millis(30));
            }
            Ok(())
        });
        let start = Instant::now();
        let wait = executor.run_step(&parts, &mut stages)?;
        let step = start.elapsed();
        assert!(wait.total() <= step);
        let share = wait.share_of(step);
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert!((share * step.as_secs_f64() - wait.total().as_secs_f64()).abs() < 1e-9);
        Ok::<_, TestError>(wait.total())
    });
    let waits = waits.unwrap_or_else(|error| panic!("{error}"));
    // Both ranks begin within the agreement before the step; rank 1 may be late for it.
    assert!(waits[1] >= Duration::from_millis(15), "{waits:?}");
}

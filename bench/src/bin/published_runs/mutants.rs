//! Each part of the simulator is needed: a simulator without it is further from published steps.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use meshwright::mesh::{AxisId, AxisSet};
use meshwright::sim::cluster::{Cluster, Level};
use meshwright::sim::{CommCall, EventKind, Pass, SimOptions, StepEvent, StepLog, simulate};

use crate::csv::Table;
use crate::predict::Predictor;
use crate::program::LoggedStep;
use crate::row::{self, Run};

/// The inputs of a simulation.
struct Inputs {
    cluster: Cluster,
    logs: Vec<StepLog>,
    options: SimOptions,
}

/// A simulator without one of its parts, and the mean error of its steps in per cent.
struct Mutant {
    without: &'static str,
    mutate: fn(&mut Inputs),
    error: f64,
}

/// Mean error in per cent of the simulator.
const ERROR: f64 = 5.9;

const MUTANTS: [Mutant; 8] = [
    Mutant { without: "the bubble of a pipeline", mutate: drop_messages, error: 8.3 },
    Mutant { without: "tensor-parallel collectives", mutate: drop_tensor_parallel, error: 6.9 },
    Mutant { without: "recomputation", mutate: drop_recomputation, error: 10.0 },
    Mutant { without: "levels above a node", mutate: flatten_levels, error: 8.0 },
    Mutant { without: "collectives of data parallelism", mutate: drop_data_parallel, error: 7.0 },
    Mutant { without: "kernels that move bytes", mutate: move_bytes_in_no_time, error: 7.3 },
    Mutant { without: "the rates of matmuls", mutate: compute_at_the_peak, error: 20.8 },
    Mutant { without: "the rates of attention", mutate: attend_at_the_peak, error: 9.3 },
];

fn drop_messages(inputs: &mut Inputs) {
    drop_calls(inputs, |call| call.message.is_some());
}

fn drop_tensor_parallel(inputs: &mut Inputs) {
    drop_calls(inputs, |call| call.axes == AxisSet::of(AxisId::Tp));
}

fn drop_data_parallel(inputs: &mut Inputs) {
    let axes = AxisSet::of(AxisId::Dp).union(AxisSet::of(AxisId::Fsdp));
    drop_calls(inputs, |call| call.axes.difference(axes).is_empty());
}

fn drop_calls(inputs: &mut Inputs, is_dropped: impl Fn(&CommCall) -> bool) {
    for log in &mut inputs.logs {
        let numbers: HashSet<u32> = log
            .events
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Call(call) => is_dropped(&call).then_some(call.number),
                _ => None,
            })
            .collect();
        keep(log, |_, event| match event.kind {
            EventKind::Call(CommCall { number, .. }) | EventKind::Await { number, .. } => {
                !numbers.contains(&number)
            }
            _ => true,
        });
    }
}

fn drop_recomputation(inputs: &mut Inputs) {
    for log in &mut inputs.logs {
        let is_recomputed = |log: &StepLog, event: &StepEvent| {
            let is_kernel = matches!(event.kind, EventKind::Kernel(_));
            is_kernel && log.context(event).pass == Pass::Recomputation
        };
        keep(log, |log, event| !is_recomputed(log, event));
    }
}

fn keep(log: &mut StepLog, is_kept: impl Fn(&StepLog, &StepEvent) -> bool) {
    log.events = log.events.iter().filter(|event| is_kept(log, event)).collect();
}

fn flatten_levels(inputs: &mut Inputs) {
    let node = inputs.cluster.levels[0].clone();
    for level in &mut inputs.cluster.levels {
        *level = Level { name: level.name.clone(), size: level.size, ..node.clone() };
    }
}

fn move_bytes_in_no_time(inputs: &mut Inputs) {
    let gpu = Arc::make_mut(&mut inputs.cluster.gpu);
    gpu.memory_bandwidth.value = f64::MAX;
}

fn compute_at_the_peak(inputs: &mut Inputs) {
    let matmul = &mut Arc::make_mut(&mut inputs.cluster.gpu).matmul;
    matmul.efficiency.value = 1.0;
    matmul.half_k.value = 0.0;
    matmul.wave_exponent.value = 0.0;
}

fn attend_at_the_peak(inputs: &mut Inputs) {
    let gpu = Arc::make_mut(&mut inputs.cluster.gpu);
    let peak = gpu.peak.iter().map(|(_, peak)| peak.value).fold(0.0, f64::max);
    let rates = gpu.attention.iter_mut().flat_map(|curve| &mut curve.rates);
    rates.for_each(|(_, rate)| *rate = peak);
}

/// A published run with the logs of its step.
struct Measured {
    run: Run,
    step: LoggedStep,
    seconds: f64,
}

impl Measured {
    /// Returns the error of a simulator, in per cent.
    fn error(&self, predictor: &Predictor, mutate: impl Fn(&mut Inputs)) -> f64 {
        let cluster = predictor.cluster(&self.run).unwrap();
        let logs = predictor.logs(&self.run, &cluster, &self.step);
        let logs = logs.into_iter().map(Arc::unwrap_or_clone).collect();
        let mut inputs = Inputs { cluster, logs, options: predictor.options() };
        mutate(&mut inputs);
        let logs: Vec<_> = inputs.logs.into_iter().map(Arc::new).collect();
        let step = simulate(&inputs.cluster, &self.step.mesh, &logs, &inputs.options).unwrap();
        100.0 * (step.seconds / self.seconds - 1.0).abs()
    }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/bin/published_runs/fixtures").join(name)
}

/// On the rows of `fixtures/rows.csv`, each mutant is clearly worse.
#[test]
fn each_part_is_needed() {
    let profiles = crate::profile::read_profiles(&fixture("profiles.toml")).unwrap();
    let predictor = Predictor::new(profiles);
    let table = Table::read(&fixture("rows.csv"), row::COLUMNS).unwrap();
    let measured = table.records().map(|record| {
        let run = Run::read(record).unwrap().unwrap();
        let (program, counts) = predictor.program(&run);
        assert_eq!(counts, [run.micro_batches; 2], "a step that is extrapolated");
        let step = program.step(counts[0]).unwrap();
        let seconds = record.number("step_s").unwrap().unwrap();
        Measured { run, step, seconds }
    });
    let measured: Vec<Measured> = measured.collect();
    let error_of = |mutate: fn(&mut Inputs)| {
        let errors = measured.iter().map(|row| row.error(&predictor, mutate));
        errors.sum::<f64>() / measured.len() as f64
    };
    let error = error_of(|_| ());
    assert!((error - ERROR).abs() < 0.06, "{error:.2} %");
    for Mutant { without, mutate, error } in MUTANTS {
        let mutated = error_of(mutate);
        assert!((mutated - error).abs() < 0.06, "without {without}: {mutated:.2} %");
        assert!(mutated > ERROR + 0.9, "without {without}: {mutated:.2} %");
    }
}

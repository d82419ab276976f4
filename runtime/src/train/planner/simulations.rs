//! The simulation of the candidates with the best estimates.

use std::collections::HashMap;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::schedule::ScheduleKind;
use crate::tensor::ZeroStage;
use crate::train::config::{ConfigError, RunSettings};
use crate::train::{Error, Result, Task};
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::effort::Effort;
use super::estimate::Estimate;
use super::left_out::LeftOut;
use super::parallel::map_on_cores;
use super::planned_run::PlannedRun;
use super::simulated_candidate::simulate_candidate;
use super::space::{SearchedModel, USABLE_MEMORY};

/// Time of a corrected estimate, over the best simulated one, after which no candidate is simulated.
const FAR_BEHIND: f64 = 1.3;
/// Additional time of an estimate for each axis, as a fraction: simpler candidates are simulated first.
const AXIS_PRICE: f64 = 0.004;
/// The same for each candidate of the mesh that has been simulated.
const SAME_MESH_PRICE: f64 = 0.02;
/// Passes of layers over micro-batches of a rank's step whose dry run takes few seconds. Candidates with more come
/// after all others.
pub const QUICK_PASSES: usize = 4200;

/// Estimates of one schedule and ZeRO stage err alike.
type Kind = (Option<ScheduleKind>, ZeroStage);

/// The mean of simulated figures over estimated ones, of a kind of candidates.
#[derive(Clone, Copy)]
struct Correction {
    seconds: f64,
    bytes: f64,
    count: f64,
}

/// Candidates that are simulated before estimates are corrected again.
const TOGETHER: usize = 2;

/// Time of an estimate, over the least one, up to which a candidate is simulated to correct others.
const EXPLORED: f64 = 1.5;
/// Tries to find a plan without a part of the best one.
const TRIES: usize = 2;

/// Simulates the candidates with the best estimates, and returns those that fit. Estimates of candidates that are alike
/// are corrected by those that have been simulated: first one of each ZeRO stage without a pipeline, which take little
/// time, then the best ones, and at the end candidates without a part of the best plan, if it has no such rival.
///
/// # Errors
/// That are not of a candidate.
pub fn simulate_best<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    effort: Effort,
    model: &SearchedModel,
    queue: Vec<(Estimate, Candidate)>,
    left_out: &mut LeftOut,
) -> Result<Vec<PlannedRun>> {
    let mut best = Simulations {
        settings,
        on,
        memory: USABLE_MEMORY * on.cluster.gpu.memory.value,
        layers: model.outline.layers,
        queue,
        corrections: HashMap::new(),
        of_mesh: HashMap::new(),
        plans: Vec::new(),
        left_out,
    };
    if effort.plans > 1 {
        let stages = [
            ZeroStage::Replicated,
            ZeroStage::Optimizer,
            ZeroStage::Gradients,
            ZeroStage::Parameters,
        ];
        let first = stages
            .into_iter()
            .filter_map(|zero| best.take_quick(|candidate| kind(candidate) == (None, zero)));
        let first: Vec<_> = first.collect();
        best.simulate::<T>(first)?;
    }
    let (plans, mut simulated) = (best.plans.len() + effort.plans, 0);
    while best.plans.len() < plans && simulated < effort.candidates {
        let is_near = best.next_seconds() <= FAR_BEHIND * best.fastest();
        let next: Vec<_> =
            (0..TOGETHER.min(effort.plans)).filter_map(|_| best.take(|_| is_near)).collect();
        if next.is_empty() {
            break;
        }
        simulated += next.len();
        best.simulate::<T>(next)?;
    }
    if effort.plans > 1 {
        for lacks in PARTS {
            for _ in 0..TRIES {
                if best.plans.is_empty() || best.plans.iter().any(|plan| lacks(&plan.candidate)) {
                    break;
                }
                let Some(rival) = best.take_quick(lacks) else { break };
                best.simulate::<T>(vec![rival])?;
            }
        }
    }
    best.left_out.behind += best.queue.len();
    Ok(best.plans)
}

/// Returns true for candidates without a part: pipelines, context and tensor parallelism, and recomputation.
const PARTS: [fn(&Candidate) -> bool; 4] = [
    |candidate| candidate.pp() == 1,
    |candidate| candidate.mesh.degree(AxisId::Cp) == 1,
    |candidate| candidate.mesh.degree(AxisId::Tp) == 1,
    |candidate| candidate.recomputed() == 0,
];

/// Candidates that wait for their simulation, and those that fit.
struct Simulations<'a> {
    settings: &'a RunSettings,
    on: &'a SizedCluster,
    /// Bytes that a plan may need.
    memory: f64,
    layers: usize,
    queue: Vec<(Estimate, Candidate)>,
    corrections: HashMap<Kind, Correction>,
    /// Candidates of each mesh that have been simulated.
    of_mesh: HashMap<MeshShape, usize>,
    plans: Vec<PlannedRun>,
    left_out: &'a mut LeftOut,
}

impl Simulations<'_> {
    fn corrected(&self, (estimate, candidate): &(Estimate, Candidate)) -> Estimate {
        let of_kind = self.corrections.get(&kind(candidate));
        of_kind.map_or(*estimate, |correction| Estimate {
            seconds: estimate.seconds * correction.seconds,
            bytes: estimate.bytes * correction.bytes,
        })
    }

    /// Returns the order in which a candidate is simulated: those that may not fit, or take long, come last.
    fn order(&self, queued: &(Estimate, Candidate)) -> (bool, bool, u64) {
        let (Estimate { seconds, bytes }, candidate) = (self.corrected(queued), queued.1);
        let passes = self.layers * candidate.micro_batches;
        let others = self.of_mesh.get(&candidate.mesh).copied().unwrap_or_default() as f64;
        let price = AXIS_PRICE * candidate.axes() as f64 + SAME_MESH_PRICE * others;
        (bytes > self.memory, passes > QUICK_PASSES, (seconds * (1.0 + price) * 1e9) as u64)
    }

    /// Removes the first of the candidates that `is_meant` selects.
    fn take(&mut self, is_meant: impl Fn(&Candidate) -> bool) -> Option<(Estimate, Candidate)> {
        self.take_queued(|_, (_, candidate)| is_meant(candidate))
    }

    /// Removes one like [`take`](Self::take), of those that fit by their estimate, are not far behind, and are dry-run
    /// in few seconds.
    fn take_quick(
        &mut self,
        is_meant: impl Fn(&Candidate) -> bool,
    ) -> Option<(Estimate, Candidate)> {
        let seconds = self.queue.iter().map(|(estimate, _)| estimate.seconds);
        let least = self.fastest().min(seconds.fold(f64::INFINITY, f64::min));
        self.take_queued(|this, queued| {
            let (is_large, is_slow, _) = this.order(queued);
            let is_near = this.corrected(queued).seconds <= EXPLORED * least;
            is_meant(&queued.1) && !is_large && !is_slow && is_near
        })
    }

    fn take_queued(
        &mut self,
        is_meant: impl Fn(&Self, &(Estimate, Candidate)) -> bool,
    ) -> Option<(Estimate, Candidate)> {
        let meant = self.queue.iter().enumerate().filter(|(_, queued)| is_meant(self, queued));
        let (index, _) = meant.min_by_key(|(_, queued)| self.order(queued))?;
        let taken = self.queue.swap_remove(index);
        *self.of_mesh.entry(taken.1.mesh).or_default() += 1;
        Some(taken)
    }

    /// Returns the corrected estimate of the next candidate.
    fn next_seconds(&self) -> f64 {
        let next = self.queue.iter().min_by_key(|queued| self.order(queued));
        next.map_or(f64::INFINITY, |next| self.corrected(next).seconds)
    }

    /// Returns the time of the fastest plan.
    fn fastest(&self) -> f64 {
        self.plans.iter().map(|plan| plan.run.step_s).fold(f64::INFINITY, f64::min)
    }

    /// Simulates candidates, and keeps those that fit.
    fn simulate<T: Task>(&mut self, next: Vec<(Estimate, Candidate)>) -> Result<()> {
        let (settings, on) = (self.settings, self.on);
        let runs = map_on_cores(
            &next,
            || (),
            |(), (_, candidate)| simulate_candidate::<T>(settings, on, candidate),
        );
        for ((estimate, _), run) in next.into_iter().zip(runs) {
            match run {
                Ok(plan) => {
                    correct(&mut self.corrections, &estimate, &plan);
                    if plan.run.memory_bytes as f64 <= self.memory {
                        self.plans.push(plan);
                    } else {
                        self.left_out.activations += 1;
                    }
                }
                Err(Error::Input(reason)) => self.left_out.refuse_model(1, reason),
                Err(Error::Config(ConfigError::Invalid(problems))) => {
                    self.left_out.refuse(problems)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn kind(candidate: &Candidate) -> Kind {
    (candidate.schedule.map(|(kind, _)| kind), candidate.zero)
}

fn correct(
    corrections: &mut HashMap<Kind, Correction>,
    estimate: &Estimate,
    PlannedRun { candidate, run }: &PlannedRun,
) {
    let none = Correction { seconds: 0.0, bytes: 0.0, count: 0.0 };
    let correction = corrections.entry(kind(candidate)).or_insert(none);
    let count = correction.count + 1.0;
    let mean = |before: f64, new: f64| (before * (count - 1.0) + new) / count;
    *correction = Correction {
        seconds: mean(correction.seconds, run.step_s / estimate.seconds),
        bytes: mean(correction.bytes, run.memory_bytes as f64 / estimate.bytes),
        count,
    };
}

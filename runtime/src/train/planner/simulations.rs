//! The simulation of the candidates with the best estimates.

use std::collections::HashMap;

use crate::mesh::MeshShape;
use crate::schedule::ScheduleKind;
use crate::tensor::ZeroStage;
use crate::train::config::{ConfigError, RunSettings};
use crate::train::{Error, LanguageModel, Result};
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

/// Simulates the candidates with the best estimates, and returns those that fit. Estimates of candidates that are alike
/// are corrected by those that have been simulated.
///
/// # Errors
/// That are not of a candidate.
pub fn simulate_best<M: LanguageModel>(
    settings: &RunSettings,
    on: &SizedCluster,
    effort: Effort,
    model: &SearchedModel,
    mut queue: Vec<(Estimate, Candidate)>,
    left_out: &mut LeftOut,
) -> Result<Vec<PlannedRun>> {
    let memory = USABLE_MEMORY * on.cluster.gpu.memory.value;
    let mut simulated = 0;
    let mut corrections: HashMap<Kind, Correction> = HashMap::new();
    let mut of_mesh: HashMap<MeshShape, usize> = HashMap::new();
    let mut plans: Vec<PlannedRun> = Vec::new();
    while plans.len() < effort.plans && simulated < effort.candidates {
        let corrected = |(estimate, candidate): &(Estimate, Candidate)| {
            let of_kind = corrections.get(&kind(candidate));
            of_kind.map_or(*estimate, |correction| Estimate {
                seconds: estimate.seconds * correction.seconds,
                bytes: estimate.bytes * correction.bytes,
            })
        };
        // The last is the next.
        queue.sort_by_cached_key(|queued| {
            let (Estimate { seconds, bytes }, candidate) = (corrected(queued), queued.1);
            let passes = model.outline.layers * candidate.micro_batches;
            let is_late = (bytes > memory, passes > QUICK_PASSES);
            let others = of_mesh.get(&candidate.mesh).copied().unwrap_or_default() as f64;
            let price = AXIS_PRICE * candidate.axes() as f64 + SAME_MESH_PRICE * others;
            let price = seconds * (1.0 + price);
            std::cmp::Reverse((is_late, (price * 1e9) as u64))
        });
        let fastest = plans.iter().map(|plan| plan.run.step_s).fold(f64::INFINITY, f64::min);
        if queue.last().is_none_or(|next| corrected(next).seconds > FAR_BEHIND * fastest) {
            break;
        }
        let next = queue.split_off(queue.len().saturating_sub(TOGETHER.min(effort.plans)));
        simulated += next.len();
        for (_, candidate) in &next {
            *of_mesh.entry(candidate.mesh).or_default() += 1;
        }
        let runs = map_on_cores(
            &next,
            || (),
            |(), (_, candidate)| simulate_candidate::<M>(settings, on, candidate),
        );
        for ((estimate, _), run) in next.into_iter().zip(runs) {
            match run {
                Ok(plan) => {
                    correct(&mut corrections, &estimate, &plan);
                    if plan.run.memory_bytes as f64 <= memory {
                        plans.push(plan);
                    } else {
                        left_out.activations += 1;
                    }
                }
                Err(Error::Input(reason)) => left_out.refuse_model(1, reason),
                Err(Error::Config(ConfigError::Invalid(problems))) => left_out.refuse(problems),
                Err(error) => return Err(error),
            }
        }
    }
    left_out.behind += queue.len();
    Ok(plans)
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

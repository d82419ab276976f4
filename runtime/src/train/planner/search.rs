//! The search: candidates are estimated, and the best of them are dry-run in full and simulated.

use std::collections::HashSet;
use std::sync::Arc;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::tensor::ParamRef;
use crate::train::config::RunSettings;
use crate::train::plan::{ModelPlan, OpenedModel, ParamCount};
use crate::train::{Family, Result, Task};
use meshwright_sim::cluster::SizedCluster;

use super::bubbles::Bubbles;
use super::candidate::Candidate;
use super::cell::CellKey;
use super::cells::measure_cells;
use super::communication::Collectives;
use super::effort::Effort;
use super::estimate::{Estimate, Estimator};
use super::estimated_points::{EstimatedPoint, estimated_points};
use super::left_out::LeftOut;
use super::planned_run::PlannedRun;
use super::ranking::rank;
use super::simulations::simulate_best;
use super::space::{Frame, SearchedModel, USABLE_MEMORY, frames, recomputations};

/// Estimates that are this much larger than the memory are kept: they are rough.
const MEMORY_MARGIN: f64 = 1.05;

/// The result of a search.
pub struct Found {
    /// The plans that fit, the best first.
    pub plans: Vec<PlannedRun>,
    /// Number of candidates, those that are left out included.
    pub considered: usize,
    pub left_out: LeftOut,
    /// The candidate with the smallest memory by its estimate.
    pub smallest: Option<Candidate>,
    /// Some of the candidates with an estimate that are not simulated.
    pub estimates: Vec<EstimatedPoint>,
    pub model: SearchedModel,
}

/// Searches the best plans on all GPUs of `on`.
///
/// # Errors
/// Settings that are wrong on every mesh, files of the model, and a cluster without a peak for the dtype.
pub fn search<T: Task>(settings: &RunSettings, on: &SizedCluster, effort: Effort) -> Result<Found> {
    let mut left_out = LeftOut::default();
    let model = open_model::<T>(settings, on)?;
    let frames = frames::<T>(settings, on, &model, &mut left_out)?;
    let mut smallest = frames.smallest;
    let frames = frames.fitting;
    let mut keys = HashSet::new();
    let mut candidates: Vec<(&Frame, Candidate, CellKey)> = Vec::new();
    for frame in &frames {
        for (rows, micro_batches) in &frame.rows {
            for recompute in recomputations(settings, &frame.candidate) {
                let key = CellKey::new(&frame.candidate.mesh, *rows, recompute);
                let micro_batches = *micro_batches;
                let candidate = Candidate { micro_batches, recompute, ..frame.candidate };
                keys.insert(key);
                candidates.push((frame, candidate, key));
            }
        }
    }
    let considered = left_out.total() + candidates.len();
    let cells = measure_cells::<T>(settings, on, &model, keys.into_iter().collect());
    let memory = USABLE_MEMORY * on.cluster.gpu.memory.value;
    let collectives = Collectives::new(&on.cluster);
    let mut estimator =
        Estimator { model: &model, limit: f64::INFINITY, collectives, bubbles: Bubbles::default() };
    let mut estimated: Vec<(Estimate, Candidate)> = Vec::new();
    // The fastest ones first, which leave out most of the others.
    let least = |key: &CellKey, candidate: &Candidate| match cells.get(key) {
        Some(Ok(cell)) => estimator.least_seconds(candidate, cell),
        _ => f64::INFINITY,
    };
    candidates.sort_by_cached_key(|(_, candidate, key)| (least(key, candidate) * 1e9) as u64);
    for (frame, candidate, key) in candidates {
        match cells.get(&key) {
            None => left_out.slow += 1,
            Some(Err(reason)) => left_out.refuse_model(1, reason.clone()),
            Some(Ok(cell)) => match estimator.estimate(frame, &candidate, cell)? {
                Some(estimate) => {
                    if estimate.bytes <= memory {
                        estimator.limit = estimator.limit.min(2.0 * estimate.seconds);
                    }
                    estimated.push((estimate, candidate));
                }
                None => left_out.slow += 1,
            },
        }
    }
    let least = estimated.iter().min_by(|a, b| a.0.bytes.total_cmp(&b.0.bytes));
    smallest = least.map(|(_, candidate)| *candidate).or(smallest);
    let all_estimated = estimated.clone();
    let before = estimated.len();
    estimated.retain(|(estimate, _)| estimate.bytes <= MEMORY_MARGIN * memory);
    left_out.activations += before - estimated.len();
    let seconds = estimated.iter().map(|(estimate, _)| estimate.seconds);
    let best = seconds.fold(f64::INFINITY, f64::min);
    let before = estimated.len();
    estimated.retain(|(estimate, _)| estimate.seconds <= 2.0 * best);
    left_out.slow += before - estimated.len();
    let mut plans = simulate_best::<T>(settings, on, effort, &model, estimated, &mut left_out)?;
    rank(&mut plans, on.gpus);
    let limits = [on.cluster.gpu.memory.value, MEMORY_MARGIN * memory];
    let estimates = estimated_points(&all_estimated, &plans, limits);
    Ok(Found { plans, considered, left_out, smallest, estimates, model })
}

/// Opens the model and declares it on one rank.
pub fn open_model<T: Task>(settings: &RunSettings, on: &SizedCluster) -> Result<SearchedModel> {
    let one = SizedCluster { cluster: Arc::clone(&on.cluster), gpus: 1 };
    let candidate = Candidate {
        mesh: MeshShape::SINGLE,
        zero: Default::default(),
        schedule: None,
        micro_batches: 1,
        recompute: RecomputeOverride::Off,
        is_eager: settings.no_graphs,
    };
    let mut settings = candidate.settings(settings, &one).without_pipeline();
    settings.batch = 1;
    settings.cp = None;
    let config = settings.resolve()?;
    let opened = OpenedModel::<T>::open(&config)?.without_weights();
    let plan = ModelPlan::new::<T>(&config, &opened, None)?;
    let is_over_ep =
        |param: &ParamRef| param.dims().iter().any(|dim| dim.axes().contains(AxisId::Ep));
    Ok(SearchedModel {
        outline: opened.family.outline(),
        parameters: ParamCount::of(&plan.params),
        has_experts: plan.params.iter().any(is_over_ep),
    })
}

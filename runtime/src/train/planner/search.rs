//! The search: candidates are estimated, and the best of them are dry-run in full and simulated.

use std::collections::HashSet;
use std::sync::Arc;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::tensor::ParamRef;
use crate::train::config::RunSettings;
use crate::train::machine::open_machine;
use crate::train::plan::{ModelPlan, OpenedModel, Plan};
use crate::train::simulate::SimulatedRun;
use crate::train::{Family, LanguageModel, Result};
use meshwright_sim::cluster::SizedCluster;

use super::bubbles::Bubbles;
use super::candidate::Candidate;
use super::cell::CellKey;
use super::cells::measure_cells;
use super::communication::Collectives;
use super::estimate::{Estimate, Estimator};
use super::left_out::LeftOut;
use super::ranking::{rank, tie};
use super::simulations::simulate_best;
use super::space::{Frame, SearchedModel, USABLE_MEMORY, frames, recomputations};

/// Estimates that are this much larger than the memory are kept: they are rough.
const MEMORY_MARGIN: f64 = 1.05;

/// Plans that are printed if `--top` is not given.
pub const TOP: usize = 5;

/// The effort of a search. It is counted and not timed, so that a search has one result.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Plans that fit and are simulated.
    pub plans: usize,
    /// Most candidates that are simulated, whether they fit or not.
    pub candidates: usize,
}

impl Effort {
    /// The effort of `--plan` that prints `top` plans.
    pub fn to_rank(top: usize) -> Effort {
        Effort { plans: 10.max(2 * top), candidates: 14.max(3 * top) }
    }

    /// The effort to find a plan that fits.
    pub const TO_FIT: Effort = Effort { plans: 1, candidates: 4 };
}

/// A candidate that was dry-run in full, and simulated.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    pub candidate: Candidate,
    pub run: SimulatedRun,
}

/// The result of a search.
pub struct Found {
    /// The plans that fit, the best first.
    pub plans: Vec<PlannedRun>,
    /// Number of candidates, those that are left out included.
    pub considered: usize,
    pub left_out: LeftOut,
    /// The candidate with the smallest memory by its estimate.
    pub smallest: Option<Candidate>,
    pub model: SearchedModel,
}

/// Searches the best plans on all GPUs of `on`.
///
/// # Errors
/// Settings that are wrong on every mesh, files of the model, and a cluster without a peak for the dtype.
pub fn search<M: LanguageModel>(
    settings: &RunSettings,
    on: &SizedCluster,
    effort: Effort,
) -> Result<Found> {
    let mut left_out = LeftOut::default();
    let model = open_model::<M>(settings, on)?;
    let frames = frames::<M>(settings, on, &model, &mut left_out)?;
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
    let cells = measure_cells::<M>(settings, on, &model, keys.into_iter().collect());
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
    let before = estimated.len();
    estimated.retain(|(estimate, _)| estimate.bytes <= MEMORY_MARGIN * memory);
    left_out.activations += before - estimated.len();
    let seconds = estimated.iter().map(|(estimate, _)| estimate.seconds);
    let best = seconds.fold(f64::INFINITY, f64::min);
    let before = estimated.len();
    estimated.retain(|(estimate, _)| estimate.seconds <= 2.0 * best);
    left_out.slow += before - estimated.len();
    let mut plans = simulate_best::<M>(settings, on, effort, &model, estimated, &mut left_out)?;
    rank(&mut plans, on.gpus);
    Ok(Found { plans, considered, left_out, smallest, model })
}

/// Dry-runs a candidate in full, and simulates it: with CUDA graphs, and without them if that is clearly faster, since
/// collectives of different process groups do not overlap each other in a graph.
///
/// # Errors
/// As a run that is only simulated.
pub fn simulate_candidate<M: LanguageModel>(
    settings: &RunSettings,
    on: &SizedCluster,
    candidate: &Candidate,
) -> Result<PlannedRun> {
    let config = candidate.settings(settings, on).resolve()?;
    let machine = Arc::from(open_machine(&config)?);
    let mut plan = Plan::new::<M>(config, machine, None)?;
    let planned = PlannedRun { candidate: *candidate, run: SimulatedRun::of_plan::<M>(&plan, on)? };
    if !plan.config.graphs {
        return Ok(planned);
    }
    // An eager step has messages of its own, so its times are those of another dry run.
    plan.config.graphs = false;
    let is_faster = |run: &SimulatedRun| run.step_s * (1.0 + tie(on.gpus)) < planned.run.step_s;
    if !is_faster(&SimulatedRun::of_plan::<M>(&plan, on)?) {
        return Ok(planned);
    }
    let eager = Candidate { is_eager: true, ..*candidate };
    let eager = simulate_candidate::<M>(settings, on, &eager)?;
    Ok(if is_faster(&eager.run) { eager } else { planned })
}

/// Opens the model and declares it on one rank.
pub fn open_model<M: LanguageModel>(
    settings: &RunSettings,
    on: &SizedCluster,
) -> Result<SearchedModel> {
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
    let opened = OpenedModel::<M::Config>::open(&config)?;
    let plan = ModelPlan::new::<M>(&config, &opened.family, None, None)?;
    let is_over_ep =
        |param: &ParamRef| param.dims().iter().any(|dim| dim.axes().contains(AxisId::Ep));
    Ok(SearchedModel {
        outline: opened.family.outline(),
        parameters: plan.params.iter().map(|param| param.global_len() as f64).sum(),
        has_experts: plan.params.iter().any(is_over_ep),
    })
}

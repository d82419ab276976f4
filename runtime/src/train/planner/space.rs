//! The space of a search: every mesh, schedule and ZeRO stage that the settings of a run accept.

use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::schedule::ScheduleKind;
use crate::tensor::ZeroStage;
use crate::train::auto_mesh::divisors;
use crate::train::config::{Config, ConfigError, Precision, RunSettings, ScheduleSource};
use crate::train::plan::{MemoryPlan, ParamCount, check_context};
use crate::train::{Error, Outline, Result, Task};
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::left_out::LeftOut;

/// Most sequences of a micro-batch.
const MOST_ROWS: usize = 16;
/// Most tokens of a micro-batch on a rank, unless it is one sequence: more make no kernel faster.
const MOST_TOKENS: usize = 32_768;
/// Fraction of a GPU's memory that a plan may take: the plan is a lower bound, and libraries take memory, too.
pub const USABLE_MEMORY: f64 = 0.94;

/// The model of a search.
pub struct SearchedModel {
    pub outline: Outline,
    pub parameters: ParamCount,
    /// True if experts may be split over `ep`.
    pub has_experts: bool,
}

/// A mesh with its schedule and ZeRO stage, which the settings accept.
pub struct Frame {
    /// Without micro-batches and recomputation.
    pub candidate: Candidate,
    /// The settings of the candidate.
    pub config: Config,
    /// Sequences of a micro-batch that divide the batch, and the number of micro-batches.
    pub rows: Vec<(usize, usize)>,
}

/// Frames that may fit, and the candidate with the smallest state.
#[derive(Default)]
pub struct Frames {
    pub fitting: Vec<Frame>,
    pub smallest: Option<Candidate>,
}

/// Returns the frames whose settings are valid and whose state fits.
///
/// # Errors
/// A `--help` in the settings.
pub fn frames<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    model: &SearchedModel,
    left_out: &mut LeftOut,
) -> Result<Frames> {
    let mut frames = Frames::default();
    let mut least = u64::MAX;
    let memory = USABLE_MEMORY * on.cluster.gpu.memory.value;
    for mesh in meshes(settings, on, model) {
        let rows = rows(settings, &mesh);
        if rows.is_empty() {
            let each = if settings.is_given("micro-batches") { settings.micro_batches } else { 1 };
            left_out.refuse_batch(mesh.degree_of(AxisSet::DATA) * each);
            continue;
        }
        for zero in zero_stages(settings, &mesh) {
            for schedule in schedules(settings, &mesh, model.outline.layers) {
                let (micro_batches, recompute) = (1, RecomputeOverride::Off);
                let is_eager = settings.no_graphs;
                let candidate =
                    Candidate { mesh, zero, schedule, micro_batches, recompute, is_eager };
                let config = match candidate.settings(settings, on).resolve() {
                    Ok(config) => config,
                    Err(ConfigError::Invalid(problems)) => {
                        left_out.refuse(problems);
                        continue;
                    }
                    Err(asked) => return Err(Error::Config(asked)),
                };
                if let Err(error) = check_context::<T>(&config) {
                    left_out.refuse_model(1, error.to_string());
                    continue;
                }
                let state = MemoryPlan::of_parameters(&config, &model.outline, model.parameters);
                // Of equal ones the last, with most ranks along `tp`, which split activations, too.
                if state.total() <= least {
                    least = state.total();
                    let micro_batches = rows.iter().map(|(_, count)| *count).max().unwrap_or(1);
                    let recompute = recomputations(settings, &candidate).pop().unwrap_or(recompute);
                    frames.smallest = Some(Candidate { micro_batches, recompute, ..candidate });
                }
                if state.total() as f64 > memory {
                    left_out.state += 1;
                    continue;
                }
                frames.fitting.push(Frame { candidate, config, rows: rows.clone() });
            }
        }
    }
    Ok(frames)
}

/// Returns the kinds of recomputation that are compared. Weight gradients of recomputed layers, at ZeRO stages 2 and 3,
/// and with bf16 gradients, are not deferred, so schedules that defer them are compared without.
pub fn recomputations(settings: &RunSettings, candidate: &Candidate) -> Vec<RecomputeOverride> {
    use ScheduleKind::{DualPipeV, ZeroBubbleH1, ZeroBubbleV};
    let defers = matches!(candidate.schedule, Some((ZeroBubbleH1 | ZeroBubbleV | DualPipeV, _)));
    let recomputes = settings.recompute.is_some_and(|given| given != RecomputeOverride::Off);
    let are_summed_apart =
        candidate.zero >= ZeroStage::Gradients || settings.grad_dtype == Precision::Bf16;
    let cannot_defer = recomputes || are_summed_apart;
    match settings.recompute {
        _ if defers && cannot_defer && settings.schedule.is_none() => Vec::new(),
        Some(given) => vec![given],
        None if defers => vec![RecomputeOverride::Off],
        None => vec![RecomputeOverride::Off, RecomputeOverride::Attention, RecomputeOverride::Full],
    }
}

/// Returns the meshes of all GPUs: tensor parallelism inside of a node, and groups of `fsdp` that are whole levels of
/// the cluster, or all ranks.
fn meshes(settings: &RunSettings, on: &SizedCluster, model: &SearchedModel) -> Vec<MeshShape> {
    let node = on.cluster.node();
    let fixed = |axis| settings.fix.as_ref().and_then(|fixed| fixed.degree(axis));
    let degrees = |axis, ranks: usize| {
        divisors(ranks).filter(move |degree| fixed(axis).is_none_or(|fixed| fixed == *degree))
    };
    let mut meshes = Vec::new();
    for tp in degrees(AxisId::Tp, on.gpus).filter(|tp| node.is_multiple_of(*tp)) {
        for pp in degrees(AxisId::Pp, on.gpus / tp).filter(|pp| *pp <= model.outline.layers + 2) {
            for cp in degrees(AxisId::Cp, on.gpus / tp / pp) {
                let rest = on.gpus / tp / pp / cp;
                for ep in degrees(AxisId::Ep, rest).filter(|ep| *ep == 1 || model.has_experts) {
                    let (inner, rest) = (tp * cp * ep, rest / ep);
                    for fsdp in degrees(AxisId::Fsdp, rest) {
                        let dp = rest / fsdp;
                        let is_level =
                            || on.cluster.levels.iter().any(|level| level.size == inner * fsdp);
                        let is_group = fsdp == 1 || dp == 1 || is_level();
                        if !(is_group || fixed(AxisId::Fsdp).is_some())
                            || fixed(AxisId::Dp).is_some_and(|fixed| fixed != dp)
                        {
                            continue;
                        }
                        meshes.extend(MeshShape::new([
                            (AxisId::Pp, pp),
                            (AxisId::Dp, dp),
                            (AxisId::Fsdp, fsdp),
                            (AxisId::Ep, ep),
                            (AxisId::Cp, cp),
                            (AxisId::Tp, tp),
                        ]));
                    }
                }
            }
        }
    }
    meshes
}

/// Returns the ZeRO stages. Without ranks that share state there is one: `dp` and `fsdp` are the same then.
fn zero_stages(settings: &RunSettings, mesh: &MeshShape) -> Vec<ZeroStage> {
    let stages = match mesh.degree_of(AxisSet::ZERO) {
        1 => vec![ZeroStage::Replicated],
        _ => vec![ZeroStage::Optimizer, ZeroStage::Gradients, ZeroStage::Parameters],
    };
    match settings.zero {
        Some(given) => vec![given],
        None => stages,
    }
}

/// Returns the schedules, with the stages of a rank.
fn schedules(
    settings: &RunSettings,
    mesh: &MeshShape,
    layers: usize,
) -> Vec<Option<(ScheduleKind, usize)>> {
    let pp = mesh.degree(AxisId::Pp);
    if pp == 1 {
        return vec![None];
    }
    // The ends of a chain may be stages of their own.
    let most = (layers + 2) / pp;
    let is_even =
        |stages: usize| (layers..=layers + 2).any(|parts| parts.is_multiple_of(pp * stages));
    let is_compared = |stages: &usize| *stages == 2 || *stages + 1 >= most || is_even(*stages);
    let interleaved = (2..=most).filter(is_compared);
    let mut found: Vec<_> = interleaved.map(|stages| (ScheduleKind::Interleaved, stages)).collect();
    for kind in [
        ScheduleKind::OneFOneB,
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleV,
        ScheduleKind::DualPipeV,
    ] {
        if kind.default_chunks() <= most {
            found.push((kind, kind.default_chunks()));
        }
    }
    if let Some(ScheduleSource::Named(given)) = settings.schedule {
        found.retain(|(kind, _)| *kind == given);
        if found.is_empty() {
            found.push((given, given.default_chunks()));
        }
    }
    if let Some(given) = settings.virtual_stages {
        let given = given as usize;
        found.iter_mut().for_each(|(_, stages)| *stages = given);
        found.dedup();
    }
    found.into_iter().map(Some).collect()
}

/// Returns the sequences of a micro-batch, the fewest first, and the number of micro-batches.
fn rows(settings: &RunSettings, mesh: &MeshShape) -> Vec<(usize, usize)> {
    let ranks = mesh.degree_of(AxisSet::DATA);
    if !settings.batch.is_multiple_of(ranks) {
        return Vec::new();
    }
    let each = settings.batch / ranks;
    let is_open = |count| !settings.is_given("micro-batches") || settings.micro_batches == count;
    let rows = divisors(each).map(|rows| (rows, each / rows)).filter(|(_, count)| is_open(*count));
    let cp = mesh.degree(AxisId::Cp);
    let is_small = |rows| rows <= MOST_ROWS && rows * settings.seq <= MOST_TOKENS * cp;
    let is_kept = |rows| rows == 1 || is_small(rows) || settings.is_given("micro-batches");
    rows.take_while(|(rows, _)| is_kept(*rows)).collect()
}

//! The pipeline of a run: its schedule, its stages, and the part of the model that each rank holds.

use std::sync::Arc;

use crate::layout::AxisId;
use crate::nn::{Built, RecomputeOverride, Sizes, build};
use crate::pipeline::{
    Pipeline, StageCut, StagePlan, StageRequest, build_stages, plan_declared_stages,
    split_at_cut_points,
};
use crate::schedule::{Action, Costs, Schedule, StageCosts, Verified, Work, simulate, verify};
use crate::tensor::{Rank, ZeroStage};
use crate::train::config::{Config, PipelineConfig, Precision, ScheduleSource};
use crate::train::console::counted;
use crate::train::{Error, FamilyModel, Result};

use super::schedule::{list_faults, open_schedule};

/// The schedule and the stages of a run whose mesh has a `pp` axis, or which measures stages.
pub struct PipelinePlan {
    name: ScheduleSource,
    /// The schedule and the cut in one line, if the mesh has a `pp` axis.
    pub description: Option<String>,
    /// The schedule with its messages, and the live passes of each rank.
    pub verified: Arc<Verified>,
    /// The cut of the model: stages of one layer each if they are measured.
    pub stages: StagePlan,
}

impl PipelinePlan {
    /// Opens the schedule and cuts the model, which is declared on `rank`, if the mesh has a `pp` axis or stages are
    /// measured.
    ///
    /// # Errors
    /// All problems of the schedule and the cut together: what does not fit the mesh, the model or the micro-batches.
    pub fn for_model<M: FamilyModel>(
        config: &Config,
        rank: &Rank,
        built: &Built<M>,
        sizes: &Sizes,
    ) -> Result<Option<PipelinePlan>> {
        let is_measured = config.stage_times.is_some();
        let pipeline = match &config.pipeline {
            Some(pipeline) => pipeline.clone(),
            None if is_measured => PipelineConfig::default(),
            None => return Ok(None),
        };
        let cut = &pipeline.stages;
        let verified = open_schedule(config, &pipeline);
        let placement = match &verified {
            Ok(verified) => verified.lowered().placement.clone(),
            Err(_) => place_fewest_stages(cut, config.mesh.degree(AxisId::Pp)),
        };
        let request = StageRequest { placement: &placement, cut, seq: config.seq };
        let stages = plan_declared_stages(rank, built, sizes, &request);
        let (verified, stages) = match (verified, stages) {
            (Ok(verified), Ok(stages)) => (verified, stages),
            (verified, stages) => {
                let of_schedule = verified.err().map(|error| error.to_string());
                let of_stages = stages.err().map(|error| error.problems).unwrap_or_default();
                let problems: Vec<String> = of_schedule.into_iter().chain(of_stages).collect();
                return Err(Error::Input(problems.join("\n")));
            }
        };
        let description = config
            .pipeline
            .is_some()
            .then(|| describe(&pipeline.schedule, verified.lowered(), &stages));
        let (stages, verified) = if is_measured {
            split_stages(&stages, verified.lowered())?
        } else {
            let recomputes =
                config.recompute.map_or(built.recomputes, |kind| kind != RecomputeOverride::Off);
            let costs = StageCosts::new(stages.costs(), recomputes);
            let verified = verified.with_stage_costs(&costs);
            (stages, verified.map_err(|faults| Error::Input(list_faults(&faults)))?)
        };
        let (name, verified) = (pipeline.schedule, Arc::new(verified));
        Ok(Some(PipelinePlan { name, description, verified, stages }))
    }

    /// Returns the position along `pp` of the last stage, which has the head.
    pub fn position_of_head(&self) -> usize {
        self.stages.placement().last().copied().unwrap_or(0)
    }

    /// Returns the stages of the ranks at a position along `pp`.
    pub fn stages_of_position(&self, position: usize) -> Vec<usize> {
        let placement = self.stages.placement().iter().enumerate();
        placement.filter(|(_, own)| **own == position).map(|(stage, _)| stage).collect()
    }

    /// Returns the actions of the schedule without effect under the run's settings, for warnings. `recomputes` is true
    /// if layers are recomputed.
    pub fn warnings(&self, config: &Config, recomputes: bool) -> Vec<String> {
        let actions = || self.verified.lowered().ranks.iter().flatten();
        let defers = actions()
            .flat_map(|action| action.computes())
            .any(|compute| compute.work == Work::BackwardWeight);
        let obstacle = if config.zero >= ZeroStage::Gradients {
            Some("at ZeRO stages 2 and 3; use --zero 1, or --schedule 1f1b")
        } else if config.grad_dtype == Precision::Bf16 {
            Some("with --grad-dtype bf16; use --grad-dtype f32, or --schedule 1f1b")
        } else {
            recomputes.then_some("of recomputed layers; use --recompute none, or --schedule 1f1b")
        };
        let mut warnings = Vec::new();
        if let (true, Some(obstacle)) = (defers, obstacle) {
            warnings.push(format!("weight gradients are not deferred {obstacle}"));
        }
        let is_gather = |action: &Action| matches!(action, Action::Unshard(_) | Action::Reshard(_));
        if actions().any(is_gather) {
            warnings.push(
                "UNSHARD and RESHARD have no effect: parameters are gathered one FSDP unit at a time"
                    .to_owned(),
            );
        }
        warnings.into_iter().map(|text| format!("--schedule {}: {text}", self.name)).collect()
    }
}

/// Builds the model of a run, or with a `pipeline` the stages of this rank. Every rank calls it.
///
/// # Errors
/// Sizes that do not fit the mesh, or a schedule for another mesh.
pub fn build_model<M: FamilyModel>(
    rank: &Rank,
    sizes: &Sizes,
    pipeline: Option<&PipelinePlan>,
) -> Result<(Built<M>, Option<Pipeline>)> {
    let Some(PipelinePlan { stages, verified, .. }) = pipeline else {
        return Ok((build::<M>(rank, sizes)?, None));
    };
    let built = build_stages::<M>(rank, sizes, stages)?;
    let pipeline = Pipeline::new(rank, &built, sizes, stages, verified)?;
    Ok((built, Some(pipeline)))
}

/// Places the fewest stages that a cut and the mesh allow, in place of a schedule with problems: a model that does not
/// fit them fits no schedule.
fn place_fewest_stages(cut: &StageCut, ranks: usize) -> Vec<usize> {
    let counts = match cut {
        StageCut::Counts(counts) => counts.len(),
        _ => 0,
    };
    (0..counts.max(ranks)).map(|stage| stage % ranks).collect()
}

/// Splits stages, to measure each of their layers.
fn split_stages(stages: &StagePlan, schedule: &Schedule) -> Result<(StagePlan, Verified)> {
    let (stages, schedule) = split_at_cut_points(stages, schedule);
    let verified = verify(&schedule)
        .map_err(|faults| Error::Input(format!("--stage-times: {}", list_faults(&faults))))?;
    Ok((stages, verified))
}

/// Numbers of layers of stages that are listed one by one.
const LISTED: usize = 16;

/// Describes a pipeline in one line: `pipeline 1f1b: 2 stages of 2,2 layers, 4 micro-batches, bubble 20.0 %`.
fn describe(name: &ScheduleSource, schedule: &Schedule, stages: &StagePlan) -> String {
    let counts = stages.counts();
    let counts = match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if counts.len() > LISTED => format!("{least} to {most}"),
        _ => counts.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    };
    let points = if stages.cuts_layers() { "layers" } else { "fields" };
    let bubble = simulate(schedule, Costs::default()).map_or(0.0, |run| run.bubble());
    format!(
        "pipeline {name}: {} of {} {points}, {}, bubble {:.1} % if all stages cost the same",
        counted(schedule.stages(), "stage"),
        counts,
        counted(schedule.micro_batches, "micro-batch"),
        100.0 * bubble
    )
}

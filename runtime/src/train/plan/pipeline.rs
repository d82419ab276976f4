//! The pipeline of a run: its schedule, its stages, and what each rank holds of the model.

use std::rc::Rc;

use crate::layout::AxisId;
use crate::nn::{Built, Sizes};
use crate::pipeline::StagePlan;
use crate::schedule::{Action, Costs, Peak, Verified, Work, simulate};
use crate::tensor::{Unit, ZeroStage};
use crate::train::config::{Config, ScheduleSource};
use crate::train::{LanguageModel, Outline, Result};

use super::declaration::cut_model;
use super::memory::{LivePasses, ModelPart, unit_sizes};
use super::schedule::open_schedule;

/// The schedule and the stages of a run whose mesh has a `pp` axis.
pub struct PipelinePlan {
    name: ScheduleSource,
    /// The schedule with its messages, and the live passes of each rank.
    pub verified: Verified,
    /// The cut of the model.
    pub stages: StagePlan,
}

impl PipelinePlan {
    /// Opens the schedule and cuts the model, if the mesh has a `pp` axis.
    ///
    /// # Errors
    /// A schedule or a cut that does not fit the mesh, the model or the micro-batches.
    pub fn open<M: LanguageModel>(config: &Config, sizes: &Sizes) -> Result<Option<PipelinePlan>> {
        let (Some(pipeline), Some(verified)) = (&config.pipeline, open_schedule(config)?) else {
            return Ok(None);
        };
        let stages = cut_model::<M>(config, sizes, pipeline, &verified.lowered.placement)?;
        Ok(Some(PipelinePlan { name: pipeline.schedule.clone(), verified, stages }))
    }

    /// Returns what of the schedule has no effect with the run's settings, for warnings. `recomputes` is true if layers are
    /// recomputed.
    pub fn warnings(&self, config: &Config, recomputes: bool) -> Vec<String> {
        let actions = || self.verified.lowered.ranks.iter().flatten();
        let defers = actions()
            .flat_map(|action| action.computes())
            .any(|compute| compute.work == Work::BackwardWeight);
        let obstacle = match (config.zero >= ZeroStage::Gradients, recomputes) {
            (true, _) => Some("at ZeRO stages 2 and 3; use --zero 1, or --schedule 1f1b"),
            (false, true) => Some("of recomputed layers; use --recompute none, or --schedule 1f1b"),
            (false, false) => None,
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

    /// Returns the part of the model of each position along `pp`.
    pub fn model_parts<M>(&self, built: &Built<M>) -> Vec<ModelPart> {
        let placement = self.stages.placement();
        let part = |(rank, peak): (usize, &Peak)| {
            let owned: Vec<Rc<Unit>> = self.stages.units_of_rank(built, rank);
            let stages = self.stages.stages_of_rank(rank);
            let layers = stages.iter().map(|stage| self.stages.layers_of_stage(*stage)).min();
            let passes = LivePasses {
                layers: layers.unwrap_or(0),
                count: peak.live,
                has_head: placement.last() == Some(&rank),
            };
            ModelPart { units: unit_sizes(&owned), passes }
        };
        self.verified.peaks.iter().enumerate().map(part).collect()
    }

    /// Describes the pipeline in one line: `pipeline 1f1b: 2 stages of 2,2 layers, 4 micro-batches, bubble 20.0 %`.
    pub fn describe(&self) -> String {
        let schedule = &self.verified.lowered;
        let counts: Vec<String> = self.stages.counts().iter().map(usize::to_string).collect();
        let points = if self.stages.cuts_layers() { "layers" } else { "fields" };
        let bubble = simulate(schedule, Costs::default()).map_or(0.0, |run| run.bubble());
        format!(
            "pipeline {}: {} stages of {} {points}, {} micro-batches, bubble {:.1} % if all stages cost the same",
            self.name,
            schedule.stages(),
            counts.join(","),
            schedule.micro_batches,
            100.0 * bubble
        )
    }
}

/// Returns the part of the model that each position along `pp` holds: all of it without a pipeline.
pub fn model_parts<M>(
    config: &Config,
    outline: &Outline,
    pipeline: Option<&PipelinePlan>,
    built: &Built<M>,
) -> Vec<ModelPart> {
    debug_assert_eq!(pipeline.is_some(), config.mesh.degree(AxisId::Pp) > 1);
    match pipeline {
        Some(pipeline) => pipeline.model_parts(built),
        None => {
            let passes = LivePasses::of_whole_model(outline);
            vec![ModelPart { units: unit_sizes(&built.units), passes }]
        }
    }
}

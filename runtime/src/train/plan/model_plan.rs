//! The model of a run on its mesh: its declaration, its pipeline and its memory.

use crate::checkpoint::hf::HfFolder;
use crate::layout::AxisId;
use crate::nn::{Built, RecomputeOverride, Sizes};
use crate::state_dict::HfName;
use crate::tensor::ParamRef;
use crate::train::config::Config;
use crate::train::task::{AnyTask, PositionsOf};
use crate::train::{Error, Family, FamilyModel, Outline, Result, Task};

use super::OpenedModel;
use super::checks::{check_batch_memory, check_experts, check_fragments, check_length};
use super::declaration::{declare_first_layers, declare_model, dry_run_rank, estimate_parameters};
use super::memory::{DryRun, MemoryPlan};
use super::pipeline::PipelinePlan;
use super::stored_shapes::{StoredShapes, hf_tensors};

/// The model of a run, checked against its mesh and the memory of the machine. Nothing is allocated.
pub struct ModelPlan {
    /// The sizes of the transformer.
    pub outline: Outline,
    /// The sizes of the model's dims, and its recomputation.
    pub sizes: Sizes,
    pub params: Vec<ParamRef>,
    /// The schedule and the stages, if the mesh has a `pp` axis.
    pub pipeline: Option<PipelinePlan>,
    /// True if layers may be recomputed.
    pub recomputes: bool,
    /// Lower bound of each rank's memory.
    pub memory: MemoryPlan,
    pub flops: ModelFlops,
}

/// Model FLOPs of training on one of the `--seq` positions of a row: see
/// [`flops_per_token`](crate::nn::Built::flops_per_token).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFlops {
    /// FLOPs of the matmuls with parameters.
    pub parameters: f64,
    /// FLOPs of attention, as if every token attended to all others.
    pub attention: f64,
}

impl ModelFlops {
    /// Counts those of a task with rows of `seq` positions.
    fn of<T: Task>(built: &Built<T::Model>, task: &T, seq: usize) -> ModelFlops {
        let (parameters, all) = if T::READS_TOKENS {
            (built.flops_per_token(0, |_| true), built.flops_per_token(seq, |_| true))
        } else {
            let without_keys = |path: &str| [task.positions(path, seq)[0], 0];
            let all = built.flops_per_row(|path| task.positions(path, seq));
            (built.flops_per_row(without_keys) / seq as f64, all / seq as f64)
        };
        ModelFlops { parameters, attention: all - parameters }
    }

    /// Returns all of them.
    pub fn total(self) -> f64 {
        self.parameters + self.attention
    }
}

impl ModelPlan {
    /// Declares an opened model on a machine with `available` bytes for all ranks.
    ///
    /// # Errors
    /// Settings and sizes that do not fit each other, the mesh, the weights or the memory.
    pub fn new<T: Task>(
        config: &Config,
        opened: &OpenedModel<T>,
        available: Option<f64>,
    ) -> Result<ModelPlan> {
        let OpenedModel { task, family, weights, .. } = opened;
        let (sizes, names) = (T::Model::dim_sizes(family), T::Model::tensor_names(family));
        let weights = weights.as_ref().map(|weights| (weights, &names[..]));
        ModelPlan::of_sizes::<T>(config, task, family.outline(), sizes, weights, available)
    }

    /// Declares a model of other sizes than its configuration, such as fewer layers; `weights` have the names of their
    /// tensors.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_sizes<T: Task>(
        config: &Config,
        task: &AnyTask,
        outline: Outline,
        mut sizes: Sizes,
        weights: Option<(&HfFolder, &[HfName])>,
        available: Option<f64>,
    ) -> Result<ModelPlan> {
        sizes.recompute = config.recompute.or(sizes.recompute);
        sizes.context = config.context.or(sizes.context);
        check_length(config, &outline, sizes.get::<PositionsOf<T>>())?;
        // Before the whole model is declared, which sizes that no machine could hold would make endless.
        let rank = dry_run_rank(config)?;
        let parameters = estimate_parameters::<T::Model>(&rank, &sizes)?;
        let stored = weights.map(|weights| StoredShapes::new::<T::Model>(&rank, &sizes, weights));
        let stored = stored.transpose()?;
        let bound = MemoryPlan::of_parameters(config, &outline, parameters);
        // A dry run needs no memory.
        let is_run = !config.is_dry_run();
        if is_run && let Err(error) = bound.check_bound(config, available) {
            return Err(stored.and_then(|stored| stored.check().err()).unwrap_or(error));
        }
        // The dry run makes the tokens of a step too.
        let row_bytes = (!T::READS_TOKENS).then(|| task.get::<T>().streams().row_bytes());
        check_batch_memory(config, row_bytes, available)?;
        let built = declare_model::<T::Model>(&rank, &sizes)?;
        let params = built.params();
        let flops = ModelFlops::of::<T>(&built, &task.get::<T>(), config.seq);
        check_experts(config, &params)?;
        check_fragments(config, &params)?;
        if let Some((weights, names)) = weights {
            let flag = "--init-from";
            let tensors = hf_tensors(names, &params, flag)?;
            weights.check_tensors(&tensors).map_err(Error::of_flag(flag))?;
        }
        let pipeline = PipelinePlan::for_model(config, &rank, &built, &sizes)?;
        let recomputes =
            config.recompute.map_or(built.recomputes, |kind| kind != RecomputeOverride::Off);
        let steps = DryRun {
            config,
            task,
            sizes: &sizes,
            pipeline: pipeline.as_ref(),
            records: config.is_dry_run(),
        };
        let memory = bound.with_steps::<T>(&steps, &outline, available)?;
        if is_run {
            memory.check_memory(config, available)?;
        }
        Ok(ModelPlan { outline, sizes, params, pipeline, recomputes, memory, flops })
    }
}

/// Checks that the experts of a model are split over the `ep` axis of the mesh, if it has one.
///
/// # Errors
/// A model without experts, and sizes that do not fit the mesh.
pub fn check_experts_of<T: Task>(config: &Config) -> Result<()> {
    if config.mesh.degree(AxisId::Ep) == 1 {
        return Ok(());
    }
    let OpenedModel { family, .. } = OpenedModel::<T>::open(config)?;
    let sizes = T::Model::dim_sizes(&family);
    let params = declare_first_layers::<T::Model>(&dry_run_rank(config)?, &sizes)?;
    check_experts(config, &params)
}

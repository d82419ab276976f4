//! The plan of a run: settings are checked against files, model and mesh before any rank starts.

mod checks;
mod claimed_output;
mod data_list;
mod data_tokenizer;
mod dataset;
mod declaration;
mod description;
mod list_problem;
mod listed_files;
mod listed_objects;
mod memory;
mod mixture_file;
mod model_plan;
mod on_mesh;
mod opened_model;
mod output_check;
mod outputs;
mod pipeline;
mod record_file;
mod resume;
mod resumed_replicas;
mod saved_architecture;
mod saved_settings;
mod schedule;
mod shared_folder;
mod stored_shapes;
mod synthetic_rows;
mod task_data;
mod validation;

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::hf::{HfConfig, HfFolder, HfFormat, SideFiles};
use crate::checkpoint::{Checkpoint, RunHistory, StoredDtype};
use crate::data::{Dataset, Tokenizer};
use crate::layout::AxisId;
use crate::nn::Sizes;
use crate::state_dict::HfName;
use crate::tensor::ParamRef;
use meshwright_sim::StepLog;

use super::config::{Config, ModelSource, Precision};
use super::console::warn_once;
use super::machine::Machine;
use super::task::AnyTask;
use super::{Error, Family, FamilyModel, Outline, Result, Task};

use checks::check_threads;
use memory::DryRun;
use model_plan::check_experts_of;
use stored_shapes::hf_tensors;

pub use checks::{check_auto_ranks, check_batch, check_context, check_documents_are_used};
pub use claimed_output::{claim, unwritable};
pub use data_tokenizer::tokenizer_of_model;
pub use dataset::with_vocab_of_data;
pub use declaration::ParamCount;
pub use description::describe_mesh;
pub use memory::MemoryPlan;
pub use model_plan::{ModelFlops, ModelPlan};
pub use opened_model::OpenedModel;
pub use outputs::PreparedOutputs;
pub use pipeline::{PipelinePlan, build_model};
pub use resume::{announce_resumed, open_if_any, open_resumed, take_saved_settings};
pub use saved_architecture::saved_family;
pub use saved_settings::{other_samples, settings_to_save};
pub use validation::Validation;

/// Fraction of the memory that the plan of a run may take on a mesh that is chosen for it.
pub const PLANNED_MEMORY: f64 = 0.8;

/// Everything that a run reads, and the settings that fit it.
pub struct Plan {
    pub config: Config,
    pub task: AnyTask,
    /// The devices of the ranks.
    pub machine: Arc<dyn Machine>,
    /// The sizes of the transformer.
    pub outline: Outline,
    /// The configuration of the model as `config.json` describes it.
    pub architecture: serde_json::Value,
    /// The sizes of the model's dims, and its recomputation.
    pub sizes: Sizes,
    /// The schedule and the stages, if the mesh has a `pp` axis, or stages are measured.
    pub pipeline: Option<PipelinePlan>,
    /// Names of the tensors of the model.
    pub hf_names: Vec<HfName>,
    /// Content of the folder of `--export-hf`.
    pub export: Option<HfFormat>,
    /// Number of parameters, in elements.
    pub parameters: usize,
    /// Lower bound of each rank's memory.
    pub memory: MemoryPlan,
    pub flops: ModelFlops,
    pub weights: Option<HfFolder>,
    pub resume: Option<Checkpoint>,
    /// The runs that lead to the checkpoints of this one.
    pub history: RunHistory,
    pub dataset: Arc<Dataset>,
    /// `--eval-data` or `--eval-fraction`.
    pub validation: Option<Validation>,
    /// Decoder of tokens, if known.
    pub tokenizer: Option<Tokenizer>,
}

impl Plan {
    /// Opens every file that the run reads, and checks the settings against them. Writes nothing but parts of data in
    /// object storage, to `--data-cache`. `resume` is the checkpoint of `--resume`.
    pub fn new<T: Task>(
        mut config: Config,
        machine: Arc<dyn Machine>,
        resume: Option<Checkpoint>,
    ) -> Result<Plan> {
        if !T::READS_TOKENS {
            task_data::check_flags(&config, T::NAME)?;
            config.sample_tokens = 0;
        }
        // Other ranks are processes, or do not run.
        if machine.own_rank().is_none() && !config.is_dry_run() {
            check_threads(&config)?;
        }
        if let Err(error) = check_batch(&config) {
            // Another batch would not help if the model does not fit the mesh either.
            check_experts_of::<T>(&config)?;
            return Err(error);
        }
        check_context::<T>(&config)?;
        let opened = OpenedModel::<T>::open(&config)?;
        opened.warnings.iter().for_each(|warning| warn_once(warning));
        let model = ModelPlan::new::<T>(&config, &opened, machine.memory())?;
        let OpenedModel { task, mut family, weights, .. } = opened;
        let ModelPlan { outline, sizes, params, pipeline, recomputes, memory, flops } = model;
        for warning in pipeline.iter().flat_map(|plan| plan.warnings(&config, recomputes)) {
            warn_once(&warning);
        }
        let vocab = outline.vocab;
        dataset::use_cache(&config)?;
        let (sources, tokenizer) = if T::READS_TOKENS {
            dataset::open_training_data(&config, vocab)?
        } else {
            (vec![task_data::open_training_examples::<T>(&config, &task)?], None)
        };
        if let Some(warning) = data_tokenizer::warn_of_tokenizer(&config, tokenizer.as_ref()) {
            warn_once(&warning);
        }
        let (sources, mut validation) =
            Validation::open::<T>(&config, &task, sources, (tokenizer.as_ref(), vocab))?;
        let dataset = dataset::sample(sources, &config)?
            .holding_out(config.eval_fraction)
            .beginning_at(resume::first_step_of_data(&config, resume.as_ref()));
        // A run with --new-data may have been trained on longer sequences before.
        if let Some(longest) = resume.as_ref().and_then(saved_architecture::longest_sequence) {
            let _ = family.extend_positions(longest);
        }
        let architecture = family.to_json();
        let hf_names = T::Model::tensor_names(&family);
        if let Some(weights) = &weights {
            let flag = "--init-from";
            let new = weights.warning_of_new(&hf_tensors(&hf_names, &params, flag)?);
            new.iter().for_each(|warning| warn_once(&format!("{flag}: {warning}")));
        }
        if let Some(warning) = family.extend_positions(config.seq) {
            warn_once(&format!("--seq: {warning}"));
        }
        let export = match &config.export_hf {
            Some(_) => {
                let tensors = hf_tensors(&hf_names, &params, "--export-hf")?;
                let format = HfFormat::new(&family, tensors);
                Some(describe_export(&config, format, weights.as_ref(), tokenizer.as_ref())?)
            }
            None => None,
        };
        if let Some(checkpoint) = &resume {
            let model = (&architecture, &params[..]);
            resume::check_checkpoint(checkpoint, &config, &dataset, model)?;
            validation.iter_mut().for_each(|validation| validation.resume(checkpoint));
        }
        let parameters = params.iter().map(ParamRef::global_len).sum();
        let dataset = Arc::new(dataset);
        let history = RunHistory::begin(resume.as_ref().map(|checkpoint| {
            let state = &checkpoint.manifest().state;
            (&state.history, state.step)
        }));
        Ok(Plan {
            config,
            task,
            machine,
            outline,
            architecture,
            sizes,
            pipeline,
            hf_names,
            export,
            parameters,
            memory,
            flops,
            weights,
            resume,
            history,
            dataset,
            validation,
            tokenizer,
        })
    }

    /// Checks that an opened model fits the mesh and `available` bytes for all ranks. The plan, a lower bound, may take
    /// the fraction [`PLANNED_MEMORY`] of them. A dry run has to fit too.
    ///
    /// # Errors
    /// The first reason why it does not fit.
    pub fn check_fit<T: Task>(
        config: &Config,
        model: &OpenedModel<T>,
        available: Option<f64>,
    ) -> Result<()> {
        if !config.is_dry_run() {
            check_threads(config)?;
        }
        Plan::check_sizes::<T>(config, model, available)
    }

    /// Checks the sizes and the memory of an opened model, as [`check_fit`](Self::check_fit) does.
    ///
    /// # Errors
    /// The first reason why it does not fit.
    pub fn check_sizes<T: Task>(
        config: &Config,
        model: &OpenedModel<T>,
        available: Option<f64>,
    ) -> Result<()> {
        let memory = Plan::memory_of::<T>(config, model, available)?;
        memory.check_fraction(PLANNED_MEMORY, config, available)
    }

    /// Plans the memory of an opened model, in `available` bytes for all ranks.
    ///
    /// # Errors
    /// Sizes that do not fit each other, the mesh or the memory.
    pub fn memory_of<T: Task>(
        config: &Config,
        model: &OpenedModel<T>,
        available: Option<f64>,
    ) -> Result<MemoryPlan> {
        check_batch(config)?;
        check_context::<T>(config)?;
        let run = Config { explain: None, simulate: None, ..config.clone() };
        Ok(ModelPlan::new::<T>(&run, model, available)?.memory)
    }

    /// Returns the number of steps that are done before the run begins.
    pub fn first_step(&self) -> u64 {
        self.resume.as_ref().map_or(0, |checkpoint| checkpoint.manifest().state.step)
    }

    /// Returns the logs of a step at each position along `pp`, on the ranks with the largest shards.
    ///
    /// # Errors
    /// Of the model or the optimizer, and a failure of the dry run.
    pub fn step_logs<T: Task>(&self) -> Result<Vec<Arc<StepLog>>> {
        let Plan { config, task, sizes, pipeline, memory, .. } = self;
        if !memory.logs().is_empty() {
            return Ok(memory.logs().to_vec());
        }
        let run = DryRun { config, task, sizes, pipeline: pipeline.as_ref(), records: true };
        let positions = 0..config.mesh.degree(AxisId::Pp);
        positions.map(|position| run.record_step::<T>(position, memory.settings(config))).collect()
    }
}

/// Completes the content of the folder of `--export-hf`. That of `--init-from` lends it what the run does not change. A
/// new model has the tokenizer of its data.
fn describe_export(
    config: &Config,
    format: HfFormat,
    weights: Option<&HfFolder>,
    tokenizer: Option<&Tokenizer>,
) -> Result<HfFormat> {
    let flag = "--export-hf";
    let of_data = tokenizer.filter(|tokenizer| !tokenizer.is_bytes());
    let (source, of_data) = match &config.model {
        ModelSource::InitFrom(folder) => (Some(folder.as_path()), None),
        ModelSource::Architecture(_) | ModelSource::New(_) => {
            (None, of_data.map(|tokenizer| Path::new(tokenizer.name())))
        }
    };
    let side_files = SideFiles::read(source, config.tokenizer.as_deref().or(of_data));
    let dtype = config.export_dtype.or(weights.map(HfFolder::dtype));
    let of_run = || match config.dtype {
        Precision::F32 => StoredDtype::F32,
        Precision::Bf16 => StoredDtype::Bf16,
    };
    // A folder of --init-from states it, or does not.
    let of_documents = config.documents.map(|documents| documents.end);
    let end = of_documents.or_else(|| tokenizer.and_then(Tokenizer::end_of_text));
    let mut format = format
        .with_end_token(end.filter(|_| source.is_none()))
        .with_dtype(dtype.unwrap_or_else(of_run))
        .with_side_files(side_files.map_err(Error::of_flag(flag))?);
    if let Some(bytes) = config.export_shard_size {
        format = format.with_part_bytes(bytes);
    }
    Ok(match weights {
        Some(weights) => format.with_keys_of(weights),
        None => format,
    })
}

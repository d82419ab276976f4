//! The plan of a run: settings are checked against files, model and mesh before any rank starts.

mod checks;
mod dataset;
mod declaration;
mod description;
mod memory;
mod outputs;
mod pipeline;
mod resume;
mod schedule;

use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::hf::{HfFolder, HfFormat};
use crate::data::{Dataset, Tokenizer};
use crate::nn::{RecomputeOverride, Sizes};
use crate::state_dict::HfMapping;
use crate::tensor::ParamRef;

use super::config::{Config, ModelSource};
use super::console::say;
use super::machine::Machine;
use super::{Error, Family, LanguageModel, Outline, Result};

use checks::{check_context, check_length, check_mesh};
use declaration::{declare_model, estimate_parameters};
use memory::{KeptActivations, kept_activations};
use pipeline::model_parts;

pub use description::describe_mesh;
pub use memory::MemoryPlan;
pub use pipeline::PipelinePlan;

/// Everything that a run reads, and the settings that fit it.
pub struct Plan {
    pub config: Config,
    /// The devices of the ranks.
    pub machine: Box<dyn Machine>,
    /// The sizes of the transformer.
    pub outline: Outline,
    /// The sizes of the model's dims, and its recomputation.
    pub sizes: Sizes,
    /// The schedule and the stages, if the mesh has a `pp` axis.
    pub pipeline: Option<PipelinePlan>,
    /// Content of the folder of `--export-hf`.
    pub export: Option<HfFormat>,
    /// Number of parameters, in elements.
    pub parameters: usize,
    /// Lower bound of each rank's memory.
    pub memory: MemoryPlan,
    pub weights: Option<HfFolder>,
    pub resume: Option<Checkpoint>,
    pub dataset: Arc<Dataset>,
    /// Decoder of tokens, if known.
    pub tokenizer: Option<Tokenizer>,
}

impl Plan {
    /// Opens every file that the run reads, and checks the settings against them. Writes nothing.
    pub fn new<M: LanguageModel>(config: Config, machine: Box<dyn Machine>) -> Result<Plan> {
        check_mesh(&config)?;
        check_context::<M>(&config)?;
        let (family, weights) = open_model::<M::Config>(&config)?;
        let outline = family.outline();
        let mut sizes = M::sizes(&family);
        sizes.recompute = config.recompute.or(sizes.recompute);
        sizes.context = config.context.or(sizes.context);
        check_length(&config, &outline, sizes.get::<M::Seq>())?;
        // Before the whole model is declared, which sizes that no machine could hold would make endless.
        let available = machine.memory();
        let parameters = estimate_parameters::<M>(&config, &sizes)?;
        MemoryPlan::of_sizes(&config, &outline, parameters, KeptActivations::Unknown, available)
            .check(&config, available)?;
        let built = declare_model::<M>(&config, &sizes)?;
        let params = built.params();
        let hf_tensors = |flag| {
            let mapping = HfMapping::new(M::HF_NAMES, &params).map_err(Error::of_flag(flag))?;
            Result::Ok(mapping.shapes())
        };
        if let Some(weights) = &weights {
            let flag = "--init-from";
            weights.check_tensors(&hf_tensors(flag)?).map_err(Error::of_flag(flag))?;
        }
        let pipeline = PipelinePlan::open::<M>(&config, &sizes)?;
        let kept = kept_activations(&config, &built);
        let recomputes = kept != KeptActivations::As(RecomputeOverride::Off);
        for warning in pipeline.iter().flat_map(|plan| plan.warnings(&config, recomputes)) {
            say(&format!("warning: {warning}"));
        }
        let parts = model_parts(&config, &outline, pipeline.as_ref(), &built);
        let memory = MemoryPlan::of_parts(&config, &outline, kept, &parts, available);
        memory.check(&config, available)?;
        let export = match &config.export_hf {
            Some(_) => Some(HfFormat::new(&family, hf_tensors("--export-hf")?)),
            None => None,
        };
        let (file, tokenizer) = dataset::open_dataset(&config, outline.vocab)?;
        let dataset = dataset::sample(file, &config)?;
        let resume = match &config.resume {
            Some(path) => Some(resume::open(path, &config, &dataset, &params)?),
            None => None,
        };
        let parameters = params.iter().map(ParamRef::global_len).sum();
        let dataset = Arc::new(dataset);
        Ok(Plan {
            config,
            machine,
            outline,
            sizes,
            pipeline,
            export,
            parameters,
            memory,
            weights,
            resume,
            dataset,
            tokenizer,
        })
    }

    /// Returns the number of steps that are done before the run begins.
    pub fn first_step(&self) -> u64 {
        self.resume.as_ref().map_or(0, |checkpoint| checkpoint.manifest().state.step)
    }
}

/// Returns the configuration of the model to train, and the folder of its weights if it is not new.
fn open_model<F: Family>(config: &Config) -> Result<(F, Option<HfFolder>)> {
    match &config.model {
        ModelSource::InitFrom(folder) => {
            let opened = HfFolder::open::<F>(folder).map_err(Error::of_flag("--init-from"));
            let (family, weights) = opened?;
            if let Some(left_out) = family.warning() {
                say(&format!("warning: --init-from {}: {left_out}", folder.display()));
            }
            Ok((family, Some(weights)))
        }
        ModelSource::New(sizes) => {
            Ok((F::of_sizes(sizes, config.seq).map_err(Error::Input)?, None))
        }
    }
}

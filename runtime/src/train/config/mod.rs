//! The settings of a run: from the command line and a `--config` file to checked values.
//!
//! A setting is read as text with its source ([`SettingSource`]), then as a value of its type in the table
//! ([`RunSettings`]); the rules about several settings are a list, and what passes them is a [`Config`]. Flags override
//! the file, and the file overrides the defaults. All problems are reported together.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::data::{DocumentOptions, Order};
use crate::mesh::MeshShape;
use crate::nn::{ContextStyle, RecomputeOverride};
use crate::tensor::{Settings, ZeroStage};

mod continue_flags;
mod error;
mod file;
mod flags;
mod given;
mod given_value;
mod kept_flags;
mod lr_schedule;
mod memory_advice;
mod optimizer;
mod optimizers;
mod pipeline;
mod precision;
mod preflight;
mod problems;
mod resolve;
mod rules;
mod setting_value;
mod settings;
mod time_limit;

pub(super) use continue_flags::{continuing_flags, exporting_flags};
pub use error::{ConfigError, Problem, SettingSource};
pub use flags::{Change, Flag, FlagKind, Kept};
pub(super) use kept_flags::{flags_of, is_same, kept_flags};
pub use lr_schedule::{Decay, LrSchedule};
pub(super) use memory_advice::memory_advice;
pub use meshwright_store::family::ModelSizes;
pub use optimizer::{OptimizerChoice, OptimizerConfig};
pub use optimizers::{OptimizerEntry, OptimizerFlags, Optimizers};
pub use pipeline::{PipelineConfig, ScheduleSource};
pub use precision::Precision;
pub use setting_value::MeshSetting;
pub use settings::{FLAGS, RunSettings};
pub use time_limit::TimeLimit;

/// The checked settings of a run.
///
/// Rules about the mesh or the contents of files (divisible dims, token ids) are checked when these are opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Config {
    /// `--config`: the file that settings were read from.
    #[serde(skip)]
    pub config_file: Option<PathBuf>,
    /// `--mesh`.
    #[serde(serialize_with = "as_text")]
    pub mesh: MeshShape,
    /// `--zero`: the ZeRO stage; by default 3 if the mesh has an `fsdp` axis, and 1 if it has a `pp` axis as well.
    #[serde(serialize_with = "zero_stage_number")]
    pub zero: ZeroStage,
    /// `--schedule` and its settings, if the mesh has a `pp` axis.
    pub pipeline: Option<PipelineConfig>,
    /// `--micro-batches`: gradient-accumulation steps of each rank.
    pub micro_batches: usize,
    /// `--recompute`: activation checkpointing; `None` leaves it to the model.
    #[serde(serialize_with = "as_optional_text")]
    pub recompute: Option<RecomputeOverride>,
    /// `--cp`: style of context-parallel attention; `None` leaves it to the model.
    #[serde(serialize_with = "as_optional_text")]
    pub context: Option<ContextStyle>,
    /// `--memory-limit`, in bytes per rank.
    pub memory_limit: Option<usize>,
    /// `--device`.
    pub device: DeviceChoice,
    /// `--nondeterministic`: results may differ in their last bits from run to run.
    pub nondeterministic: bool,
    /// CUDA graphs: on for GPUs, unless `--no-graphs` is given.
    pub graphs: bool,
    /// `--dtype`: compute dtype of parameters and activations.
    pub dtype: Precision,
    /// `--reduce-dtype`: dtype of the gradient reduction over the data ranks.
    pub reduce_dtype: Precision,
    /// `--threads` of each rank; `None` divides the cores ([`Config::threads_per_rank`]).
    pub threads: Option<usize>,
    /// `--init-from`, or the sizes of a new model.
    pub model: ModelSource,
    /// `--accept-keys`: unknown keys of the `config.json` of `--init-from` that are left out.
    pub accept_keys: Vec<String>,
    /// `--balance`: weight of the load-balancing loss, 0 for `none`; `None` leaves it to the configuration of the
    /// model.
    pub balance: Option<f64>,
    /// `--z-loss`: weight of the z-loss of routers; `None` leaves it to the configuration of the model.
    pub z_loss: Option<f64>,
    /// `--data`; `None` reads the project's own text.
    pub data: Option<PathBuf>,
    /// `--tokenizer`; `None` takes that of the `--init-from` folder, and tokenizes byte by byte for a new model.
    pub tokenizer: Option<PathBuf>,
    /// `--order`.
    pub order: Order,
    /// `--documents`, `--pack` and `--mask-borders`: how rows are made of documents; `None` if each row is one.
    pub documents: Option<DocumentOptions>,
    /// `--batch`: the global batch, in sequences.
    pub batch: usize,
    /// `--seq`: sequence length in tokens.
    pub seq: usize,
    /// `--steps`: optimizer steps in total, including those before `--resume`.
    pub steps: u64,
    /// `--seed`.
    pub seed: u64,
    /// `--optimizer` and its settings.
    pub optimizer: OptimizerConfig,
    /// `--explain`: the collectives of a step are printed, and nothing is trained.
    pub explain: bool,
    /// `--preflight`: the steps that are compared with one rank, instead of a training run.
    #[serde(skip)]
    pub preflight: Option<u64>,
    /// `--save` and its settings.
    pub save: Option<SaveConfig>,
    /// `--resume`; for `auto`, the folder of `--save`. The trainer of a command line takes the settings of the
    /// checkpoint from it.
    pub resume: Option<PathBuf>,
    /// `--resume auto`: without an intact checkpoint, the run begins.
    #[serde(skip)]
    pub resume_auto: bool,
    /// `--stop-after`: time from the start of the program until the run stops after a step.
    #[serde(skip)]
    pub stop_after: Option<TimeLimit>,
    /// `--export-hf`.
    pub export_hf: Option<PathBuf>,
    /// `--metrics`.
    pub metrics: Option<PathBuf>,
    /// `--trace`.
    pub trace: Option<PathBuf>,
    /// `--stage-times`.
    pub stage_times: Option<PathBuf>,
    /// `--sample-tokens`: length of the continuation sampled at the end, possibly 0.
    pub sample_tokens: usize,
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// CPU cores; ranks are threads.
    Cpu,
    /// GPUs with CUDA.
    Cuda,
}

/// The source of a model's sizes and weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelSource {
    /// `--init-from`: a Hugging Face folder.
    InitFrom(PathBuf),
    /// A new model of these sizes.
    New(ModelSizes),
}

/// `--save` and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SaveConfig {
    /// `--save`: the folder of checkpoints.
    pub dir: PathBuf,
    /// `--save-every`: `None` saves after the last step only.
    pub every: Option<u64>,
    /// `--save-async`: checkpoints before the last one are written while training goes on.
    pub asynchronous: bool,
    /// `--keep`: `None` keeps all.
    pub keep: Option<usize>,
    /// `--max-failed-saves`: number of saves in a row that fail and end the run.
    pub max_failed: usize,
}

impl Config {
    /// Parses the command line of this process.
    ///
    /// # Errors
    /// [`ConfigError::Asked`] for `--help`, [`ConfigError::Invalid`] with all problems. [`ConfigError::exit`] ends the
    /// process with the usual exit code of either.
    pub fn from_args() -> Result<Config, ConfigError> {
        Config::from_args_with(&Optimizers::default())
    }

    /// The settings of this process's command line, with `--optimizer` one of `optimizers`.
    ///
    /// # Errors
    /// As [`Config::from_args`].
    pub fn from_args_with(optimizers: &Optimizers) -> Result<Config, ConfigError> {
        Config::parse_with(std::env::args_os(), optimizers)
    }

    /// Parses a command line whose first word is the name of the program.
    ///
    /// # Errors
    /// As [`Config::from_args`].
    pub fn parse<A: Into<OsString>>(
        args: impl IntoIterator<Item = A>,
    ) -> Result<Config, ConfigError> {
        Config::parse_with(args, &Optimizers::default())
    }

    /// The settings of a command line, with `--optimizer` one of `optimizers`.
    ///
    /// # Errors
    /// As [`Config::from_args`].
    pub fn parse_with<A: Into<OsString>>(
        args: impl IntoIterator<Item = A>,
        optimizers: &Optimizers,
    ) -> Result<Config, ConfigError> {
        RunSettings::read(args.into_iter().map(Into::into), optimizers)?.resolve()
    }

    /// Returns the settings of each rank: dtypes, ZeRO stage, seed and limits.
    pub fn settings(&self) -> Settings {
        Settings {
            compute: self.dtype.dtype(),
            reduce: self.reduce_dtype.dtype(),
            zero: self.zero,
            memory_limit: self.memory_limit,
            ..Settings::new(self.seed)
        }
    }

    /// Returns the threads of each of `ranks` ranks on this machine: `--threads`, else the cores divided by ranks, at
    /// least 1.
    pub fn threads_per_rank(&self, ranks: usize) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(|| (cores() / ranks.max(1)).max(1))
    }
}

fn zero_stage_number<S: Serializer>(level: &ZeroStage, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(level.number())
}

fn as_text<S: Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn as_optional_text<T: std::fmt::Display, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

#[cfg(test)]
mod tests;

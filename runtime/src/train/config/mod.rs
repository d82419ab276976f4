//! The settings of a run: from the command line and a `--config` file to checked values.
//!
//! As typed, a setting is text with the place it came from ([`Source`]); resolved, it is a field of [`Config`]. Flags
//! override the file, the file overrides the defaults. Everything that is wrong is reported at once.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::data::Order;
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::tensor::{Settings, ZeroLevel};

mod error;
mod file;
mod flags;
mod given;
mod optimizer;
mod optimizers;
mod resolve;
mod sharding;
mod values;

pub use error::{ConfigError, Problem, Source};
pub use flags::{FLAGS, Flag, Kind};
pub use optimizer::{OptimizerChoice, OptimizerConfig};
pub use optimizers::{OptimizerEntry, OptimizerFlags, Optimizers};
pub use sharding::Precision;

/// The checked settings of a run.
///
/// What depends on the mesh or on a file's contents (divisible dims, token ids) is judged by whoever opens them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// `--mesh`.
    #[serde(serialize_with = "as_text")]
    pub mesh: MeshShape,
    /// `--zero`: 3 where the mesh has an `fsdp` axis and none was given.
    #[serde(serialize_with = "as_number")]
    pub zero: ZeroLevel,
    /// `--micro-batches`: parts of each rank's share of a step.
    pub micro_batches: usize,
    /// `--recompute`; `None` is what the model declares.
    #[serde(serialize_with = "as_optional_text")]
    pub recompute: Option<RecomputeOverride>,
    /// `--memory-limit`: bytes of each rank.
    pub memory_limit: Option<usize>,
    /// `--device`.
    pub device: Device,
    /// `--nondeterministic`: results may differ in their last bits from run to run.
    pub nondeterministic: bool,
    /// Not `--no-graphs`: on a GPU, what it does in a step is recorded once and then done again at once.
    pub graphs: bool,
    /// `--dtype`: of parameters as layers read them, and of activations.
    pub dtype: Precision,
    /// `--reduce-dtype`: in which gradients are summed over the data ranks.
    pub reduce_dtype: Precision,
    /// `--threads`: of each rank; `None` shares out the cores ([`Config::threads_per_rank`]).
    pub threads: Option<usize>,
    /// `--init-from`, or the sizes of a new model.
    pub model: ModelSource,
    /// `--data`; `None` is the project's own text.
    pub data: Option<PathBuf>,
    /// `--tokenizer`; `None` tokenises byte by byte.
    pub tokenizer: Option<PathBuf>,
    /// `--order`.
    pub order: Order,
    /// `--batch`: sequences of a step over all ranks.
    pub batch: usize,
    /// `--seq`: tokens of a sequence.
    pub seq: usize,
    /// `--steps`: optimiser steps in all, those before `--resume` included.
    pub steps: u64,
    /// `--seed`.
    pub seed: u64,
    /// `--optimizer` and its settings.
    pub optimizer: OptimizerConfig,
    /// `--save` and what goes with it.
    pub save: Option<SaveConfig>,
    /// `--resume`.
    pub resume: Option<PathBuf>,
    /// `--export-hf`.
    pub export_hf: Option<PathBuf>,
    /// `--metrics`.
    pub metrics: Option<PathBuf>,
    /// `--trace`.
    pub trace: Option<PathBuf>,
    /// `--sample-tokens`: length of the continuation at the end; 0 for none.
    pub sample_tokens: usize,
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The machine's cores.
    Cpu,
    /// GPUs.
    Cuda,
}

/// Where a model's sizes and weights come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelSource {
    /// `--init-from`: a Hugging Face folder.
    InitFrom(PathBuf),
    /// A new model of these sizes.
    New(ModelSizes),
}

/// The sizes of a new model; what is `None` follows from the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ModelSizes {
    /// `--hidden`: width of the residual stream.
    pub hidden: usize,
    /// `--layers`: transformer blocks.
    pub layers: usize,
    /// `--heads`: query heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `--kv-heads`: key and value heads.
    pub kv_heads: Option<usize>,
    /// `--ffn`: width of the feed-forward.
    pub ffn: Option<usize>,
    /// `--vocab`: number of token ids.
    pub vocab: usize,
    /// `--tied`: one weight for embedding and head.
    pub tied: bool,
}

/// `--save` and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SaveConfig {
    /// `--save`: the folder of checkpoints.
    pub dir: PathBuf,
    /// `--save-every`: `None` saves after the last step only.
    pub every: Option<u64>,
    /// `--keep`: `None` keeps all.
    pub keep: Option<usize>,
}

impl Config {
    /// The settings of this process's command line.
    ///
    /// # Errors
    /// [`ConfigError::Asked`] for `--help`, [`ConfigError::Invalid`] for anything wrong. [`ConfigError::exit`] ends
    /// the process as users expect of either.
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

    /// The settings of a command line whose first word is the name of the program.
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
        let given = given::read(args.into_iter().map(Into::into), optimizers)?;
        resolve::resolve(given, optimizers)
    }

    /// How each rank computes, and what it shares out.
    pub fn settings(&self) -> Settings {
        Settings {
            seed: self.seed,
            compute: self.dtype.dtype(),
            reduce: self.reduce_dtype.dtype(),
            zero: self.zero,
            memory_limit: self.memory_limit,
            logits_limit: None,
        }
    }

    /// Threads for each of `ranks` ranks of this machine: `--threads`, else the cores shared out, at least 1.
    pub fn threads_per_rank(&self, ranks: usize) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(|| (cores() / ranks.max(1)).max(1))
    }
}

fn as_number<S: Serializer>(level: &ZeroLevel, to: S) -> Result<S::Ok, S::Error> {
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

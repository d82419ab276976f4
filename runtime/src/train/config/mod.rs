//! The settings of a run: from the command line and a `--config` file to checked values.
//!
//! A setting is read as text with its source ([`SettingSource`]), then as a value of its type in the table
//! ([`RunSettings`]); the rules about several settings are a list, and what passes them is a [`Config`]. Flags override
//! the file, and the file overrides the defaults. All problems are reported together.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::data::{ExampleSource, RowSource};
use crate::tensor::Settings;
use meshwright_sim::cluster::Cluster;

mod auto_sizes;
mod continue_flags;
mod dry_run_rules;
mod dtype_rules;
mod error;
mod file;
mod fixed_degrees;
mod flags;
mod given;
mod given_value;
mod kept_flags;
mod known_flags;
mod local_sgd;
mod local_sgd_rules;
mod lr_schedule;
mod memory_advice;
mod object_rules;
mod on_nan;
mod optimizer;
mod optimizers;
mod other_mesh;
mod other_names;
mod own_flags;
mod own_rows;
mod pipeline;
mod precision;
mod preflight;
mod problems;
mod resolve;
mod rules;
mod setting_value;
mod settings;
mod settings_macro;
mod task_input;
mod time_limit;

pub use auto_sizes::check_parts;
pub(super) use continue_flags::{continuing_flags, exporting_flags};
pub use error::{ConfigError, Problem, SettingSource};
pub use fixed_degrees::FixedDegrees;
pub use flags::{Change, Flag, FlagKind, Kept};
pub(super) use kept_flags::{MODEL_FILES, flags_of, is_same, kept_flags};
pub use local_sgd::LocalSgdConfig;
pub use lr_schedule::{Decay, LrSchedule};
pub(super) use memory_advice::memory_advice;
pub use meshwright_store::family::{LoadBalancing, ModelSizes};
pub use on_nan::OnNan;
pub use optimizer::{OptimizerChoice, OptimizerConfig};
pub use optimizers::{OptimizerEntry, OptimizerFlags, Optimizers};
pub use own_rows::OwnRows;
pub use pipeline::{PipelineConfig, ScheduleSource};
pub use precision::Precision;
pub use setting_value::{AutoSizes, MeshSetting, OutputForm};
pub use settings::{Config, FLAGS, RunSettings};
pub use task_input::TaskInput;
pub use time_limit::TimeLimit;

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// CPU cores; ranks are threads.
    Cpu,
    /// GPUs with CUDA.
    Cuda,
}

impl DeviceChoice {
    /// Returns the device of the ranks on a cluster.
    pub(in crate::train) fn of_cluster(cluster: &Cluster) -> DeviceChoice {
        if cluster.gpu.is_shared() { DeviceChoice::Cpu } else { DeviceChoice::Cuda }
    }
}

/// The source of a model's sizes and weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelSource {
    /// `--init-from`: a Hugging Face folder.
    InitFrom(PathBuf),
    /// `--architecture`: a new model of the sizes of a `config.json`, or of that in a folder.
    Architecture(PathBuf),
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
    /// `--keep-best`: the checkpoint of the lowest validation loss is saved and kept.
    pub best: bool,
    /// `--max-failed-saves`: number of saves in a row that fail and end the run.
    pub max_failed: usize,
}

/// `--eval-data` or `--eval-fraction`, and the settings of evaluations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ValidationConfig {
    /// `--eval-data`; `None` for the part of the data that `--eval-fraction` holds out.
    pub data: Option<PathBuf>,
    /// `--eval-every`: steps between two evaluations.
    pub every: u64,
    /// `--eval-steps`: batches of an evaluation; `None` for all.
    pub steps: Option<u64>,
    /// `--early-stop`: number of evaluations in a row without a lower loss that end the run.
    pub early_stop: Option<u64>,
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

    /// Returns the settings of each rank: dtypes, ZeRO stage, seed and limits. The replicas of `--local-steps` are of
    /// the trainer, which synchronizes them.
    pub fn settings(&self) -> Settings {
        Settings {
            compute: self.dtype.dtype(),
            reduce: self.reduce_dtype.dtype(),
            gradients: self.grad_dtype.dtype(),
            state: self.state_dtype.dtype(),
            zero: self.zero,
            memory_limit: self.memory_limit,
            checks: self.checks,
            first_squares: self.noise_scale,
            ..Settings::new(self.seed)
        }
    }

    /// Returns true if no step of the run is computed: `--explain` and `--simulate`. It needs no devices, no memory,
    /// and without `--data` no tokens.
    pub fn is_dry_run(&self) -> bool {
        self.explain.is_some() || self.simulate.is_some()
    }

    /// Returns the settings of a run on the rows of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_rows(self, source: impl RowSource + 'static) -> Config {
        Config { rows: Some(OwnRows(Arc::new(source))), ..self }
    }

    /// Returns the settings of a run on the examples of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_examples(mut self, source: impl ExampleSource + 'static) -> Config {
        self.task.get_or_insert_default().examples = Some(Arc::new(source));
        self
    }

    /// Returns the threads of each of `ranks` ranks on this machine: `--threads`, else the cores divided by ranks, at
    /// least 1.
    pub fn threads_per_rank(&self, ranks: usize) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(|| (cores() / ranks.max(1)).max(1))
    }
}

#[cfg(test)]
mod tests;

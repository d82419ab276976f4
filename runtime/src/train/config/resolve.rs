//! Resolution of the settings to a checked [`Config`].

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::data::{DocumentOptions, ExampleSource, RowSource};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::pipeline::StageCut;
use crate::schedule::ScheduleKind;
use crate::train::LrSchedule;

use super::given::{explain_clap_error, read_given};
use super::kept_flags::add_kept_flags;
use super::optimizer::OptimizerChoice;
use super::optimizers::{OptimizerEntry, OptimizerFlags};
use super::own_flags::OwnFlags;
use super::own_rows::OwnRows;
use super::rules::RULES;
use super::setting_value::MeshSetting;
use super::settings::{FLAGS, RunSettings, VALIDATION};
use super::{
    Config, ConfigError, DeviceChoice, ModelSizes, ModelSource, OptimizerConfig, Optimizers,
    PipelineConfig, Precision, SaveConfig, ScheduleSource, SettingSource, ValidationConfig,
};

impl RunSettings {
    /// Reads a command line whose first word is the name of the program, and the file that it names.
    ///
    /// # Errors
    /// As [`Config::parse_with`], for settings that cannot be read at all.
    pub fn read(
        args: impl IntoIterator<Item = OsString>,
        optimizers: &Optimizers,
    ) -> Result<RunSettings, ConfigError> {
        Ok(RunSettings::read_and::<()>(args, optimizers)?.0)
    }

    /// Reads a command line with the settings and the flags of the program, which are those of `A`.
    ///
    /// # Errors
    /// As [`read`](Self::read), and flags of the program that clash with settings.
    pub fn read_and<A: clap::Args>(
        args: impl IntoIterator<Item = OsString>,
        optimizers: &Optimizers,
    ) -> Result<(RunSettings, A), ConfigError> {
        let own = OwnFlags::of::<A>()?;
        let (given, matches) = read_given(args.into_iter().collect(), optimizers, &own)?;
        let own = A::from_arg_matches(&matches).map_err(explain_clap_error)?;
        Ok((RunSettings::of(given, optimizers), own))
    }

    /// Returns the settings of a run on the rows of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_rows(self, source: impl RowSource + 'static) -> RunSettings {
        RunSettings { rows: Some(OwnRows(Arc::new(source))), ..self }
    }

    /// Returns the settings of a run with these flags of its task.
    #[must_use]
    pub fn with_task_flags<F: Send + Sync + 'static>(mut self, flags: F) -> RunSettings {
        self.task.get_or_insert_default().flags = Some(Arc::new(flags));
        self
    }

    /// Returns the settings of a run on the examples of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_examples(mut self, source: impl ExampleSource + 'static) -> RunSettings {
        self.task.get_or_insert_default().examples = Some(Arc::new(source));
        self
    }

    /// Adds the settings that the checkpoint in `folder` keeps, which are `saved`, by flag. Those that are given
    /// override them.
    ///
    /// # Errors
    /// Sizes that are given and differ from the saved ones, and settings that no run has saved.
    pub fn with_kept(mut self, folder: &Path, saved: &Value) -> Result<RunSettings, ConfigError> {
        add_kept_flags(&mut self.given, folder, saved).map_err(ConfigError::Invalid)?;
        let RunSettings { rows, task, .. } = self;
        Ok(RunSettings { rows, task, ..RunSettings::of(self.given, &self.optimizers) })
    }

    /// Replaces `--mesh`.
    pub fn with_mesh(&self, mesh: &MeshShape) -> RunSettings {
        RunSettings { mesh: Some(MeshSetting::Axes(*mesh)), ..self.clone() }
    }

    /// Returns the path to resume from, if `--resume` is given, and true for `auto`: the folder of `--save`. `None` for
    /// a `--preflight`, which refuses the flag.
    pub fn resume_path(&self) -> Option<(&Path, bool)> {
        match self.resume.as_deref().filter(|_| !self.is_given("preflight"))? {
            auto if auto == Path::new("auto") => Some((self.save.as_deref()?, true)),
            folder => Some((folder, false)),
        }
    }

    /// Checks the rules, and returns the settings of a run.
    ///
    /// # Errors
    /// All problems with the settings.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let mut problems = self.problems.clone();
        let settings = self.for_simulation();
        RULES.iter().for_each(|rule| rule(&settings, &mut problems));
        problems.finish(FLAGS)?;
        Ok(settings.config())
    }

    /// Returns true if no step of the run is computed.
    pub(in crate::train) fn is_dry_run(&self) -> bool {
        self.explain.is_some() || self.simulate.is_some()
    }

    /// Sets what a simulated run leaves open: it is on the device of the cluster.
    pub(in crate::train) fn for_simulation(mut self) -> RunSettings {
        if let Some(on) = self.simulate.as_ref().filter(|_| !self.is_given("device")) {
            self.device = DeviceChoice::of_cluster(&on.cluster);
        }
        let limit = self.memory_limit.map_or(f64::INFINITY, |bytes| bytes as f64);
        self.simulate = self.simulate.map(|on| on.with_memory_limit(limit));
        self
    }

    /// Returns the settings of steps on made-up tokens.
    pub(in crate::train) fn without_data(&self) -> RunSettings {
        let mut settings = self.clone();
        settings.rows = None;
        (settings.data, settings.tokenizer, settings.text_key, settings.token_dtype) =
            Default::default();
        (settings.eval_data, settings.eval_fraction) = Default::default();
        for name in FLAGS.iter().filter(|flag| flag.group == VALIDATION).map(|flag| flag.name) {
            settings.given.remove(name);
        }
        for name in ["data", "tokenizer", "text-key", "token-dtype"] {
            settings.given.remove(name);
        }
        settings
    }

    /// Returns the settings without those of a pipeline.
    pub(in crate::train) fn without_pipeline(mut self) -> RunSettings {
        for name in ["schedule", "virtual-stages"] {
            self.given.remove(name);
        }
        (self.schedule, self.virtual_stages) = (None, None);
        self
    }

    /// Returns the settings without those that a search could choose, and their flags.
    pub(in crate::train) fn free_for_plan(&self) -> (RunSettings, Vec<String>) {
        let mut free = self.clone();
        let chosen = ["fix", "zero", "micro-batches", "schedule", "virtual-stages", "recompute"];
        let names = chosen.into_iter().filter(|name| free.given.remove(*name).is_some());
        let names = names.map(|name| format!("--{name}")).collect();
        (free.fix, free.zero, free.schedule, free.virtual_stages, free.recompute) =
            Default::default();
        (free, names)
    }

    /// Returns true if the sizes of the model come from the `config.json` of `--init-from` or `--architecture`.
    pub(in crate::train) fn has_model_file(&self) -> bool {
        self.init_from.is_some() || self.architecture.is_some()
    }

    /// Returns true if a setting is given, or kept by a checkpoint.
    pub(in crate::train) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns true if a setting is given, and no switch that is off.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|given| given.text != "false")
    }

    /// Returns true if the value is not that of a checkpoint, which another run was given.
    pub(super) fn is_given_now(&self, name: &str) -> bool {
        let given = self.given.get(name);
        given.is_some_and(|given| !matches!(given.source, SettingSource::Checkpoint { .. }))
    }

    /// Returns the mesh with its order of ranks.
    pub(super) fn shape(&self) -> MeshShape {
        let ordered = self.mesh_order.map(|order| self.axes().with_order(order));
        ordered.and_then(Result::ok).unwrap_or(self.axes())
    }

    /// Returns the mesh in the default order. Without `--data` and a model of a file it defaults to the four ranks of
    /// the demonstration run.
    pub(super) fn axes(&self) -> MeshShape {
        match self.mesh {
            Some(MeshSetting::Axes(mesh)) => mesh,
            None if self.data.is_none() && !self.has_model_file() => {
                MeshShape::new([(AxisId::Dp, 2), (AxisId::Tp, 2)]).expect("the mesh is valid")
            }
            _ => MeshShape::SINGLE,
        }
    }

    /// Returns the compute dtype.
    pub(in crate::train) fn dtype(&self) -> Precision {
        self.dtype.unwrap_or(match self.device {
            DeviceChoice::Cpu => Precision::F32,
            DeviceChoice::Cuda => Precision::Bf16,
        })
    }

    /// Returns true if steps run as CUDA graphs. In a graph, all calls of a rank are one branch, so the messages of a
    /// pipeline would wait for the gradient reductions before them, and the reductions of all positions would become
    /// one chain.
    pub(super) fn uses_graphs(&self) -> bool {
        let mesh = self.shape();
        let is_chained = mesh.degree(AxisId::Pp) > 1 && mesh.degree_of(AxisSet::TOKENS) > 1;
        let is_eager = self.no_graphs || self.noise_scale || is_chained;
        self.device == DeviceChoice::Cuda && !is_eager
    }

    /// Returns the pipeline schedule.
    pub(super) fn schedule(&self) -> ScheduleSource {
        self.schedule.clone().unwrap_or(ScheduleSource::Named(ScheduleKind::OneFOneB))
    }

    /// Returns the pipeline settings if the mesh has a `pp` axis.
    pub(super) fn pipeline(&self) -> Option<PipelineConfig> {
        let schedule = self.schedule();
        let virtual_stages = match &schedule {
            ScheduleSource::File(_) => None,
            ScheduleSource::Named(kind) => {
                let given = self.virtual_stages.map(|count| count as usize);
                Some(given.unwrap_or(kind.default_chunks()))
            }
        };
        let stages = self.stages.clone().unwrap_or(StageCut::Auto);
        let is_pipelined = self.shape().degree(AxisId::Pp) > 1;
        is_pipelined.then_some(PipelineConfig { schedule, virtual_stages, stages })
    }

    /// Returns how rows are made of documents.
    pub(super) fn document_options(&self) -> Option<DocumentOptions> {
        let (packs, masks_borders) = (self.pack, self.mask_borders);
        self.documents.map(|end| DocumentOptions { end: end as u32, packs, masks_borders })
    }

    /// Returns the settings of checkpoints.
    pub(super) fn save_config(&self) -> Option<SaveConfig> {
        Some(SaveConfig {
            dir: self.save.clone()?,
            every: self.save_every,
            asynchronous: self.save_async,
            keep: self.keep,
            best: self.keep_best,
            max_failed: self.max_failed_saves.unwrap_or(3),
        })
    }

    /// Returns the settings of evaluations, if there is validation data.
    pub(super) fn validation_config(&self) -> Option<ValidationConfig> {
        (self.eval_data.is_some() || self.eval_fraction.is_some()).then(|| ValidationConfig {
            data: self.eval_data.clone(),
            every: self.eval_every.unwrap_or(100),
            steps: self.eval_steps,
            early_stop: self.early_stop,
        })
    }

    /// Returns the source of the model.
    pub(super) fn model(&self) -> ModelSource {
        match (&self.init_from, &self.architecture) {
            (Some(folder), _) => ModelSource::InitFrom(folder.clone()),
            (None, Some(path)) => ModelSource::Architecture(path.clone()),
            (None, None) => ModelSource::New(ModelSizes {
                hidden: self.hidden,
                layers: self.layers,
                heads: self.heads,
                kv_heads: self.kv_heads,
                ffn: self.ffn,
                vocab: self.vocab,
                tied: self.tied,
                experts: self.experts,
                top_k: self.top_k,
            }),
        }
    }

    /// Returns the optimizer and its settings.
    pub(super) fn optimizer_config(&self) -> OptimizerConfig {
        OptimizerConfig {
            choice: self.optimizer_choice(),
            lr: LrSchedule {
                decay: self.lr_schedule,
                peak: self.lr,
                min: self.min_lr,
                warmup: self.warmup,
                steps: self.steps,
            },
            weight_decay: self.weight_decay,
            clip: Some(self.clip).filter(|norm| *norm > 0.0),
            ema: self.ema,
        }
    }

    /// Returns the entry of `--optimizer`; of an unknown one, the default.
    pub(super) fn optimizer_entry(&self) -> &OptimizerEntry {
        self.optimizers.find(&self.optimizer)
    }

    /// Returns the optimizer with the flags that it takes, given or by default.
    pub(super) fn optimizer_choice(&self) -> OptimizerChoice {
        let entry = self.optimizer_entry();
        let defaults = entry.defaults();
        let flags = OptimizerFlags {
            betas: defaults.betas.map(|own| if self.is_given("betas") { self.betas } else { own }),
            eps: defaults.eps.map(|own| if self.is_given("eps") { self.eps } else { own }),
            momentum: defaults.momentum.map(|own| self.momentum.unwrap_or(own)),
            weight_decay: self.weight_decay,
        };
        OptimizerChoice { name: entry.name().to_owned(), rule: entry.make_rule(&flags), flags }
    }
}

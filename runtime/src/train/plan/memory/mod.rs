//! The memory plan: a lower bound of the memory of a run, checked before anything is allocated.
//!
//! First, the state of all parameters must fit. Then a [dry run](dry_run) of two training steps, and of the export and
//! the continuation after the last one, allocates what the run will allocate, without memory: on each position along
//! `pp` the rank with the largest parts.

mod dry_run;
mod logits;
mod rank_usage;
mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::backend::{Bytes, Category};
use crate::layout::{AxisId, AxisSet};
use crate::tensor::{Settings, ZeroStage};

use crate::train::config::{Config, DeviceChoice, memory_advice};
use crate::train::console::counted;
use crate::train::report::StepUsage;
use crate::train::{Error, Outline, Result, Task};

use meshwright_sim::StepLog;

use super::checks::check_documents_are_used;
use super::declaration::ParamCount;
use super::pipeline::PipelinePlan;

use dry_run::{DryRunFindings, Peaks};
use logits::{LogitBytes, logits_limit, memory_of_rank};
use state::StateBytes;

pub use dry_run::DryRun;

/// Lower bound of a rank's memory: the peak of each category, and of all together, on the rank that needs most of it.
///
/// On the CPU it is exactly the memory that the run allocates, except that buffers of transfers between ranks
/// may be held for longer. A GPU needs more for its libraries.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    largest: Peaks,
    /// Total of the rank that needs most without the sampled continuation.
    without_sample: f64,
    /// The fullest rank of a mesh with a `pp` axis, whose ranks differ.
    fullest: Option<StageMemory>,
    /// Bytes of all ranks together.
    all_ranks: f64,
    logits_limit: Option<usize>,
    keeps_last_units: bool,
    /// The process groups of the run, by axes; `None` if they are not known.
    groups: Option<BTreeSet<AxisSet>>,
    /// The logs of a step at each position along `pp`, if the dry runs record them.
    logs: Vec<Arc<StepLog>>,
    /// Mean FLOPs of a step at each position along `pp`, and its communication on the first rank there, if the dry runs
    /// have all its micro-batches.
    usage: Vec<StepUsage>,
}

/// Peaks on the ranks at one position along `pp`.
#[derive(Debug, Clone, PartialEq)]
struct StageMemory {
    position: usize,
    /// Stages of these ranks.
    stages: Vec<usize>,
    peaks: Peaks,
}

impl MemoryPlan {
    /// Plans the state of `count` parameters and the residual stream at one layer: a lower bound that takes no
    /// time, however large the sizes are. Counts dims that do not divide evenly, and pipeline stages, as if they did,
    /// and all parameters as if they belonged to experts.
    pub fn of_parameters(config: &Config, outline: &Outline, count: ParamCount) -> MemoryPlan {
        let degree = |axis| config.mesh.degree(axis) as f64;
        let each = StateBytes::per_parameter(config);
        let split = [AxisId::Tp, AxisId::Pp, AxisId::Ep].map(degree);
        let split = split.into_iter().product::<f64>();
        let (all, trained) = (count.all / split, count.trained / split);
        let parts = config.mesh.degree_of(AxisSet::DATA) * config.micro_batches;
        let tokens = config.batch as f64 * config.seq as f64 / parts as f64;
        let tokens = tokens / (degree(AxisId::Cp) * degree(AxisId::Tp));
        let element = config.dtype.dtype().bytes() as f64;
        let mut largest = Peaks::default();
        for (category, bytes) in [
            (Category::Parameters, each.parameters * all),
            (Category::Gradients, each.gradients * trained),
            (Category::Optimizer, each.optimizer * trained),
            (Category::Activations, element * tokens * outline.hidden as f64),
        ] {
            largest.of[category as usize] = bytes;
            largest.total += bytes;
        }
        let all_ranks = largest.total * config.mesh.world_size() as f64;
        let without_sample = largest.total;
        MemoryPlan {
            largest,
            without_sample,
            fullest: None,
            all_ranks,
            logits_limit: None,
            keeps_last_units: true,
            groups: None,
            logs: Vec::new(),
            usage: Vec::new(),
        }
    }

    /// Plans the steps of a run, on a machine with `available` bytes for all ranks, by dry runs. Returns this plan if
    /// the model has none. Units are [kept](Settings::keeps_last_units) unsharded if the run fits so.
    ///
    /// # Errors
    /// As the model and the optimizer; and if `--documents` is given for a model that ignores documents.
    pub fn with_steps<T: Task>(
        self,
        run: &DryRun<'_>,
        outline: &Outline,
        available: Option<f64>,
    ) -> Result<MemoryPlan> {
        let plan = self.clone().with_dry_runs::<T>(run, outline, available)?;
        let may_keep = run.config.zero == ZeroStage::Parameters;
        if !may_keep || plan.check_memory(run.config, available).is_ok() {
            return Ok(plan);
        }
        MemoryPlan { keeps_last_units: false, ..self }.with_dry_runs::<T>(run, outline, available)
    }

    fn with_dry_runs<T: Task>(
        self,
        run: &DryRun<'_>,
        outline: &Outline,
        available: Option<f64>,
    ) -> Result<MemoryPlan> {
        let DryRun { config, pipeline, .. } = run;
        let with_limit = |logits_limit| Settings { logits_limit, ..self.settings(config) };
        let positions = config.mesh.degree(AxisId::Pp);
        let logits = LogitBytes::of_model(config, outline);
        let memory = memory_of_rank(config, available);
        let logits_limit = match memory.filter(|_| config.device == DeviceChoice::Cuda) {
            None => None,
            Some(memory) => {
                // The limit follows from all other needs of the steps, on the rank of the head. It must not follow from
                // the needs of the continuation, whose length may change when a run is resumed.
                let head = pipeline.map_or(0, PipelinePlan::position_of_head);
                let unrecorded = DryRun { records: false, ..*run };
                let Some(rest) = unrecorded.on_position::<T>(head, with_limit(Some(0)))? else {
                    return Ok(self);
                };
                Some(logits_limit(logits, memory, rest.steps.total))
            }
        };
        let ranks_each = (config.mesh.world_size() / positions) as f64;
        let largest = Peaks::default();
        let mut plan = MemoryPlan {
            largest,
            without_sample: 0.0,
            fullest: None,
            all_ranks: 0.0,
            logits_limit,
            keeps_last_units: self.keeps_last_units,
            groups: Some(groups_of_reports(config)),
            logs: Vec::new(),
            usage: Vec::new(),
        };
        let mut uses_documents = false;
        for position in 0..positions {
            let found = run.on_position::<T>(position, with_limit(logits_limit))?;
            let Some(found) = found else { return Ok(self) };
            let DryRunFindings { run: peaks, without_sample, without_copy, .. } = found;
            let uses = found.uses_documents;
            plan.groups = plan.groups.zip(found.groups).map(|(all, own)| &all | &own);
            plan.logs.extend(found.log);
            plan.usage.extend(found.usage);
            plan.without_sample = plan.without_sample.max(without_sample.total);
            plan.all_ranks += peaks.total * ranks_each - without_copy;
            plan.largest.join(&peaks);
            if let Some(pipeline) = pipeline.filter(|_| positions > 1)
                && plan.fullest.as_ref().is_none_or(|most| peaks.total > most.peaks.total)
            {
                let stages = pipeline.stages_of_position(position);
                plan.fullest = Some(StageMemory { position, stages, peaks });
            }
            uses_documents |= uses;
        }
        if config.documents.is_some() {
            check_documents_are_used(uses_documents)?;
        }
        Ok(plan)
    }

    /// Returns the settings of each rank of the run.
    pub fn settings(&self, config: &Config) -> Settings {
        let MemoryPlan { logits_limit, keeps_last_units, .. } = *self;
        let local_replicas = config.local_sgd.is_some();
        Settings { logits_limit, keeps_last_units, local_replicas, ..config.settings() }
    }

    /// The process groups of the run, by axes; `None` if they are not known.
    pub fn groups(&self) -> Option<&BTreeSet<AxisSet>> {
        self.groups.as_ref()
    }

    /// The logs of a step at each position along `pp`, if the dry runs record them.
    pub fn logs(&self) -> &[Arc<StepLog>] {
        &self.logs
    }

    /// Mean FLOPs of a step at each position along `pp`, and its communication on the first rank there; none if the dry
    /// runs have left out micro-batches.
    pub fn usage(&self) -> &[StepUsage] {
        &self.usage
    }

    /// Returns the peak of one category.
    pub fn peak_of(&self, category: Category) -> u64 {
        self.largest.of[category as usize] as u64
    }

    /// Returns the peak of all categories together. Categories need not peak at the same time.
    pub fn total(&self) -> u64 {
        self.largest.total as u64
    }

    /// Returns the bytes of all ranks together.
    pub fn of_all_ranks(&self) -> f64 {
        self.all_ranks
    }

    /// Refuses a run that needs more than `--memory-limit` or the `available` bytes of the machine.
    pub fn check_memory(&self, config: &Config, available: Option<f64>) -> Result<()> {
        self.check_limit(config)?;
        match available {
            Some(available) => self.check_machine(config, available),
            None => Ok(()),
        }
    }

    /// Refuses a run that needs more than the `available` bytes of the machine; if these are unknown, more than
    /// `--memory-limit`. For a plan that is not complete: the limit is better checked against all categories.
    pub fn check_bound(&self, config: &Config, available: Option<f64>) -> Result<()> {
        match available {
            Some(available) => self.check_machine(config, available),
            None => self.check_limit(config),
        }
    }

    /// Refuses a run that needs more than a `fraction` of what [`check_memory`](Self::check_memory) allows.
    pub fn check_fraction(
        &self,
        fraction: f64,
        config: &Config,
        available: Option<f64>,
    ) -> Result<()> {
        let limits = [
            config.memory_limit.map(|limit| (self.largest.total, limit as f64)),
            available.map(|all| (self.all_ranks, all)),
        ];
        let Some((needed, limit)) =
            limits.into_iter().flatten().find(|(needed, limit)| *needed > fraction * limit)
        else {
            return Ok(());
        };
        Err(Error::Input(format!(
            "the plan needs {} of {}, more than {} %",
            Bytes(needed),
            Bytes(limit),
            100.0 * fraction
        )))
    }

    fn check_limit(&self, config: &Config) -> Result<()> {
        match config.memory_limit {
            Some(limit) if self.largest.total > limit as f64 => Err(Error::Input(format!(
                "--memory-limit: {} is too low: {}\n{}",
                Bytes(limit as f64),
                self.need_of("each rank"),
                self.advice(config)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a run whose ranks together need more than the machine has.
    fn check_machine(&self, config: &Config, available: f64) -> Result<()> {
        if self.all_ranks <= available {
            return Ok(());
        }
        let each = match config.mesh.degree(AxisId::Pp) {
            1 => format!("Each of {}", counted(config.mesh.world_size(), "rank")),
            _ => "Each rank".to_owned(),
        };
        Err(Error::Input(format!(
            "not enough memory: the run needs at least {}, and {} are available. {}\n{}",
            Bytes(self.all_ranks),
            Bytes(available),
            self.need_of(&each),
            self.advice(config)
        )))
    }

    /// Lists settings that take less memory; first `--sample-tokens`, if the continuation takes more than the steps.
    fn advice(&self, config: &Config) -> String {
        let advice = memory_advice(config);
        if self.without_sample < self.largest.total {
            format!(
                "without a sampled continuation, --sample-tokens 0, it is {}\n{advice}",
                Bytes(self.without_sample)
            )
        } else {
            advice
        }
    }

    /// Describes the needs of `ranks`, or of the fullest ones of a pipeline: `each rank needs at least 1 MB:`, with a
    /// line for each category.
    pub fn need_of(&self, ranks: &str) -> String {
        let Some(StageMemory { position, stages, peaks }) = &self.fullest else {
            return format!("{ranks} needs at least {}", self.largest);
        };
        let list: Vec<String> = stages.iter().map(usize::to_string).collect();
        let plural = if stages.len() == 1 { "" } else { "s" };
        let list = list.join(" and ");
        format!(
            "{ranks} at position {position} of pp (stage{plural} {list}) needs at least {peaks}"
        )
    }
}

/// Prints the total, and a line for each category.
impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Bytes(self.total))?;
        let planned = Category::ALL.into_iter().zip(self.of).filter(|(_, bytes)| *bytes > 0.0);
        for (category, bytes) in planned {
            write!(f, "\n  {:<14}{:>10}", category.name(), Bytes(bytes))?;
        }
        Ok(())
    }
}

/// Returns the process groups of reports, by axes, which no dry run of a step uses.
fn groups_of_reports(config: &Config) -> BTreeSet<AxisSet> {
    let has_balance = config.has_metrics() && config.mesh.degree(AxisId::Cp) > 1;
    has_balance.then_some(AxisSet::DATA).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters of the tiny model.
    const PARAMETERS: f64 = 340.0;

    /// A transformer of two layers of width 4 with a vocabulary of 10.
    const TINY: Outline =
        Outline { layers: 2, hidden: 4, heads: 2, kv_heads: 1, vocab: 10, longest: None };

    fn config(line: &str) -> Config {
        Config::parse(format!("t --batch 2 --seq 8 {line}").split(' ')).unwrap()
    }

    fn plan(config: &Config) -> MemoryPlan {
        let count = ParamCount { all: PARAMETERS, trained: PARAMETERS };
        MemoryPlan::of_parameters(config, &TINY, count)
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        let dp = config("--mesh dp=2");
        let listed = PARAMETERS as usize;
        let plan = plan(&dp);
        assert_eq!(plan.peak_of(Category::Optimizer), 8 * listed as u64);
        // 8 tokens of width 4.
        assert_eq!(plan.peak_of(Category::Activations), 8 * 4 * 4);
        let needed = (16 * listed + 8 * 4 * 4) as f64;
        assert_eq!(plan.total() as f64, needed);

        assert!(plan.check_machine(&dp, 2.0 * needed).is_ok());
        let text = plan.check_machine(&dp, 2.0 * needed - 1.0).unwrap_err().to_string();
        assert_eq!(
            text,
            "not enough memory: the run needs at least 11.1 kB, and 11.1 kB are available. Each of 2 ranks needs at \
             least 5.57 kB:\n  parameters       1.36 kB\n  gradients        1.36 kB\n  optimizer        2.72 kB\n  \
             activations        128 B\nto use less memory: --recompute full, more fsdp or tp ranks, a smaller --batch \
             or \
             --seq or a smaller model"
        );
    }

    #[test]
    fn memory_limit_is_per_rank() {
        let total = plan(&config("--mesh dp=2")).total();
        let check = |limit: u64| {
            let config = config(&format!("--mesh dp=2 --memory-limit {limit}"));
            plan(&config).check_limit(&config)
        };
        assert!(check(total).is_ok());
        let text = check(total - 1).unwrap_err().to_string();
        let start =
            "--memory-limit: 5.57 kB is too low: each rank needs at least 5.57 kB:\n  parameters ";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("\nto use less memory: --recompute full, "), "{text}");
    }

    #[test]
    fn the_fullest_stages_are_named() {
        let config = config("--mesh pp=2 --memory-limit 1");
        let plan = plan(&config);
        let fullest = StageMemory { position: 1, stages: vec![1, 3], peaks: plan.largest };
        let plan = MemoryPlan { fullest: Some(fullest), ..plan };
        let need =
            "ach rank at position 1 of pp (stages 1 and 3) needs at least 2.98 kB:\n  parameters ";
        let text = plan.check_limit(&config).unwrap_err().to_string();
        assert!(text.starts_with(&format!("--memory-limit: 1 B is too low: e{need}")), "{text}");
        let text = plan.check_machine(&config, 1.0).unwrap_err().to_string();
        assert!(text.contains(&format!("1 B are available. E{need}")), "{text}");
    }

    #[test]
    fn ranks_divide_the_model_and_the_batch() {
        let whole = plan(&config("--mesh 1")).total();
        assert_eq!(plan(&config("--mesh tp=2")).total() * 2, whole);
        assert_eq!(plan(&config("--mesh fsdp=2")).total() * 2, whole);
        let stream = 16 * 4 * 4;
        assert_eq!(plan(&config("--mesh pp=2")).total() * 2, whole + stream);
        assert_eq!(plan(&config("--mesh cp=2 --zero 0")).total(), whole - stream / 2);
        assert_eq!(plan(&config("--mesh 1 --micro-batches 2")).total(), whole - stream / 2);
    }

    #[test]
    fn a_fraction_of_the_memory_may_be_planned() {
        let config = config("--mesh dp=2");
        let plan = plan(&config);
        let needed = 2.0 * plan.total() as f64;
        assert!(plan.check_fraction(0.5, &config, Some(2.0 * needed)).is_ok());
        let text = plan.check_fraction(0.5, &config, Some(2.0 * needed - 1.0)).unwrap_err();
        assert_eq!(text.to_string(), "the plan needs 11.1 kB of 22.3 kB, more than 50 %");
    }
}

//! The memory plan: a lower bound of the memory of a run, checked before anything is allocated.

mod activations;
mod context;
mod logits;
mod state;

use std::fmt;
use std::rc::Rc;

use crate::backend::{Bytes, Category};
use crate::layout::AxisId;
use crate::nn::{Built, ContextStyle, RecomputeOverride};
use crate::optim::ParamGroups;
use crate::tensor::{ParamRef, Unit};

use crate::train::config::{Config, memory_advice};
use crate::train::{Error, Outline, Result};

use activations::ActivationBytes;
use logits::{logits_limit, memory_of_rank};
use state::{LINE, StateBytes, StateLayout};

pub use activations::{KeptActivations, LivePasses};
pub use state::UnitSize;

/// Lower bound of a rank's memory: the peak of each category, and of all together, on the rank that needs most of it.
///
/// Parameters, gradients and optimizer state are exact if the FSDP units of the model are known. Activations, workspace and
/// communication are those that any transformer of these sizes needs, so a run that is refused would not fit.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    peaks: [f64; Category::ALL.len()],
    total: f64,
    /// Bytes of all ranks together.
    all_ranks: f64,
    logits_limit: Option<usize>,
}

/// The part of the model that the ranks of one position along `pp` hold: all of it without a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPart {
    pub units: Vec<UnitSize>,
    pub passes: LivePasses,
}

impl MemoryPlan {
    /// Plans a model with known FSDP units and, if its attentions are context-parallel, their style, on a machine with
    /// `available` bytes for all ranks. `parts` has one element for each position along `pp`.
    pub fn of_parts(
        config: &Config,
        outline: &Outline,
        kept: KeptActivations,
        context: Option<ContextStyle>,
        parts: &[ModelPart],
        available: Option<f64>,
    ) -> MemoryPlan {
        let layout = StateLayout::of(config);
        let needs = parts.iter().map(|part| RankBytes {
            state: layout.of_units(&part.units),
            exchanged: layout.exchanged(&part.units),
            activations: ActivationBytes::of_passes(config, outline, kept, context, part.passes),
            has_head: part.passes.has_head,
        });
        MemoryPlan::of_ranks(config, &needs.collect::<Vec<_>>(), available)
    }

    /// Plans a model with a known number of `parameters`. Counts dims that do not divide evenly, and pipeline stages, as if
    /// they did, no activations of pipeline stages, and attention as if it was not context-parallel.
    pub fn of_sizes(
        config: &Config,
        outline: &Outline,
        parameters: f64,
        kept: KeptActivations,
        available: Option<f64>,
    ) -> MemoryPlan {
        let each = StateLayout::of(config).per_parameter();
        let stages = config.mesh.degree(AxisId::Pp);
        let parameters = parameters / (config.mesh.degree(AxisId::Tp) * stages) as f64;
        let state = StateBytes {
            parameters: each.parameters * parameters,
            gradients: each.gradients * parameters,
            optimizer: each.optimizer * parameters,
        };
        let passes = match stages {
            1 => LivePasses::of_whole_model(outline),
            // The cut, on which the other activations depend, is unknown.
            _ => LivePasses { layers: 0, count: 1, has_head: false },
        };
        let activations = ActivationBytes::of_passes(config, outline, kept, None, passes);
        let needs = RankBytes { state, exchanged: 0.0, activations, has_head: passes.has_head };
        MemoryPlan::of_ranks(config, &[needs], available)
    }

    /// Plans ranks of one position along `pp` each.
    fn of_ranks(config: &Config, needs: &[RankBytes], available: Option<f64>) -> MemoryPlan {
        let memory = memory_of_rank(config, available);
        let at_head = needs.iter().rfind(|need| need.has_head);
        let logits_limit = at_head.and_then(|need| need.logits_limit(config, memory));
        let ranks_each = config.mesh.world_size() as f64 / needs.len() as f64;
        let mut largest = MemoryPlan {
            peaks: [0.0; Category::ALL.len()],
            total: 0.0,
            all_ranks: 0.0,
            logits_limit,
        };
        for need in needs {
            let (peaks, total) = need.peaks(logits_limit);
            largest.all_ranks += total * ranks_each;
            largest.total = largest.total.max(total);
            for (largest, peak) in largest.peaks.iter_mut().zip(peaks) {
                *largest = largest.max(peak);
            }
        }
        largest
    }

    /// Returns the most logits that a rank's head materializes, equal on all ranks; see
    /// [`Settings::logits_limit`](crate::tensor::Settings::logits_limit).
    pub fn logits_limit(&self) -> Option<usize> {
        self.logits_limit
    }

    /// Returns the peak of one category.
    pub fn peak_of(&self, category: Category) -> u64 {
        self.peaks[category as usize] as u64
    }

    /// Returns the peak of all categories together. Categories need not peak at the same time.
    pub fn total(&self) -> u64 {
        self.total as u64
    }

    /// Refuses a run that needs more than `--memory-limit` or the `available` bytes of the machine.
    pub fn check(&self, config: &Config, available: Option<f64>) -> Result<()> {
        self.check_limit(config)?;
        match available {
            Some(available) => self.check_machine(config, available),
            None => Ok(()),
        }
    }

    /// Refuses a run that needs more than a `fraction` of what [`check`](Self::check) allows.
    pub fn check_fraction(
        &self,
        fraction: f64,
        config: &Config,
        available: Option<f64>,
    ) -> Result<()> {
        let limits = [
            config.memory_limit.map(|limit| (self.total, limit as f64)),
            available.map(|all| (self.all_ranks, all)),
        ];
        let Some((needed, limit)) =
            limits.into_iter().flatten().find(|(needed, limit)| *needed > fraction * limit)
        else {
            return Ok(());
        };
        Err(Error::Input(format!(
            "{} of {} are planned, more than {} %",
            Bytes(needed),
            Bytes(limit),
            100.0 * fraction
        )))
    }

    fn check_limit(&self, config: &Config) -> Result<()> {
        match config.memory_limit {
            Some(limit) if self.total > limit as f64 => Err(Error::Input(format!(
                "--memory-limit: {} are too few: each rank needs at least {self}\n{}",
                Bytes(limit as f64),
                memory_advice(config)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a run whose ranks together need more than the machine has.
    fn check_machine(&self, config: &Config, available: f64) -> Result<()> {
        if self.all_ranks <= available {
            return Ok(());
        }
        let ranks = config.mesh.world_size();
        let each = match config.mesh.degree(AxisId::Pp) {
            1 => format!("Each of {ranks} ranks"),
            _ => format!("The largest of {ranks} ranks"),
        };
        Err(Error::Input(format!(
            "not enough memory: the run needs at least {}, and {} are available. {each} needs at least \
             {self}\n{}",
            Bytes(self.all_ranks),
            Bytes(available),
            memory_advice(config)
        )))
    }
}

/// Bytes that one rank needs.
struct RankBytes {
    state: StateBytes,
    exchanged: f64,
    activations: ActivationBytes,
    has_head: bool,
}

impl RankBytes {
    /// Returns the most logits that the head of this rank materializes, if the rank may use `memory` bytes.
    fn logits_limit(&self, config: &Config, memory: Option<f64>) -> Option<usize> {
        let ActivationBytes { at_head, head, .. } = self.activations;
        logits_limit(config, head.logits(), memory, self.state.total() + at_head + head.dweight())
    }

    /// Returns the peak of each category, and that of all together.
    fn peaks(&self, logits_limit: Option<usize>) -> ([f64; Category::ALL.len()], f64) {
        let RankBytes { state, exchanged, activations, has_head } = self;
        let ActivationBytes { at_head, in_layers, in_attention, attention_workspace, head } =
            activations;
        let workspace = if *has_head { head.workspace(logits_limit) } else { 0.0 };
        let mut peaks = [0.0; Category::ALL.len()];
        for (category, bytes) in [
            (Category::Parameters, state.parameters),
            (Category::Gradients, state.gradients),
            (Category::Optimizer, state.optimizer),
            (
                Category::Activations,
                at_head.max(*in_layers).max(in_attention - attention_workspace),
            ),
            (Category::Communication, *exchanged),
            (Category::Workspace, workspace.max(*attention_workspace)),
        ] {
            peaks[category as usize] = bytes;
        }
        // The others do not peak at the same time.
        let transient = (at_head + workspace).max(*in_layers).max(*in_attention).max(*exchanged);
        (peaks, state.total() + transient)
    }
}

/// Prints the total, and a line for each category.
impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Bytes(self.total))?;
        let planned = Category::ALL.into_iter().zip(self.peaks).filter(|(_, bytes)| *bytes > 0.0);
        for (category, bytes) in planned {
            write!(f, "\n  {:<14}{:>10}", category.name(), Bytes(bytes))?;
        }
        Ok(())
    }
}

/// Returns the activations that are kept, by `--recompute` or by attributes of the model.
pub fn kept_activations<M>(config: &Config, built: &Built<M>) -> KeptActivations {
    match config.recompute {
        Some(recompute) => KeptActivations::As(recompute),
        None if built.recomputes => KeptActivations::Unknown,
        None => KeptActivations::As(RecomputeOverride::Off),
    }
}

/// Returns the sizes of FSDP units of a model that was declared on the rank with the largest shards.
pub fn unit_sizes<'a>(units: impl IntoIterator<Item = &'a Rc<Unit>>) -> Vec<UnitSize> {
    let groups = ParamGroups::default();
    let size = |unit: &Rc<Unit>| {
        let params = unit.params();
        // Parameters take whole lines of the buffers.
        let elements = |param: &ParamRef| (param.local_len() as u64).next_multiple_of(LINE);
        let by_group = params.iter().map(|param| (groups.of(param), elements(param))).collect();
        UnitSize { split: unit.split_axes(), len: unit.len() as u64, by_group }
    };
    units.into_iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::AxisSet;
    use crate::optim::Group;

    /// Parameters of the tiny model.
    const PARAMETERS: f64 = 340.0;

    /// Returns a Llama of two layers of width 4: 2 heads of 2, one key-value head, a feed-forward of 6, a vocabulary of 10.
    pub(super) fn tiny() -> Outline {
        Outline {
            layers: 2,
            hidden: 4,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            value_dim: 2,
            ffn: 6,
            gated: true,
            vocab: 10,
            longest: None,
        }
    }

    fn config(line: &str) -> Config {
        Config::parse(format!("t --batch 2 --seq 8 {line}").split(' ')).unwrap()
    }

    fn plan(config: &Config) -> MemoryPlan {
        let kept = KeptActivations::As(RecomputeOverride::Off);
        MemoryPlan::of_sizes(config, &tiny(), PARAMETERS, kept, None)
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        let dp = config("--mesh dp=2");
        let listed = PARAMETERS as usize;
        let plan = plan(&dp);
        assert_eq!(plan.peak_of(Category::Optimizer), 8 * listed as u64);
        // 8 tokens: of each layer 4 x 4 of the stream, 2 x 4 + 2 x 2 of attention, 3 x 6 of the feed-forward, 2 + 2
        // statistics; the last stream, and the head's input with its gradient; the gradient of its weight, and logits.
        let activations = 8 * (2 * (16 + 12 + 18 + 4) + 4 + 8) * 4;
        assert_eq!(plan.peak_of(Category::Activations), activations as u64);
        assert_eq!(plan.peak_of(Category::Workspace), 4 * (10 * 4 + 8 * 10));
        let needed = (16 * listed + activations + 480) as f64;
        assert_eq!(plan.total() as f64, needed);

        assert!(plan.check_machine(&dp, 2.0 * needed).is_ok());
        let text = plan.check_machine(&dp, 2.0 * needed - 1.0).unwrap_err().to_string();
        assert_eq!(
            text,
            "not enough memory: the run needs at least 19.0 kB, and 19.0 kB are available. Each of 2 ranks needs at \
             least 9.50 kB:\n  parameters       1.36 kB\n  gradients        1.36 kB\n  optimizer        2.72 kB\n  \
             activations      3.58 kB\n  workspace          480 B\nwhat takes less: --recompute full, more fsdp or tp \
             ranks, a smaller --batch or --seq or a smaller model"
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
            "--memory-limit: 9.50 kB are too few: each rank needs at least 9.50 kB:\n  parameters ";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("\nwhat takes less: --recompute full, "), "{text}");
    }

    #[test]
    fn largest_pipeline_rank_counts() {
        let config = config("--mesh pp=2,dp=2");
        let kept = KeptActivations::As(RecomputeOverride::Off);
        let part = |len, count, has_head| {
            let units =
                vec![UnitSize { split: AxisSet::NONE, len, by_group: vec![(Group::ALL[0], len)] }];
            ModelPart { units, passes: LivePasses { layers: 1, count, has_head } }
        };
        let of =
            |parts: &[ModelPart]| MemoryPlan::of_parts(&config, &tiny(), kept, None, parts, None);
        let parts = [part(1 << 20, 2, false), part(1 << 10, 1, true)];
        let (first, both) = (of(&parts[..1]), of(&parts));
        assert_eq!(both.total(), first.total());
        let head = of(&parts[1..]).peak_of(Category::Workspace);
        assert_eq!(
            (first.peak_of(Category::Workspace), both.peak_of(Category::Workspace)),
            (0, head)
        );
        // Two ranks of each position.
        assert_eq!(both.all_ranks, 2.0 * (first.total + of(&parts[1..]).total));
        let text = both.check_machine(&config, 1.0).unwrap_err().to_string();
        assert!(text.contains("The largest of 4 ranks needs at least"), "{text}");
    }

    #[test]
    fn larger_of_communication_and_activations_counts() {
        let fsdp = config("--mesh fsdp=2");
        let unit = UnitSize {
            split: AxisSet::NONE,
            len: 1 << 20,
            by_group: vec![(Group::ALL[0], 1 << 20)],
        };
        let units = [unit.clone(), unit];
        let kept = KeptActivations::As(RecomputeOverride::Off);
        let passes = LivePasses::of_whole_model(&tiny());
        let parts = [ModelPart { units: units.to_vec(), passes }];
        let plan = MemoryPlan::of_parts(&fsdp, &tiny(), kept, None, &parts, None);
        assert_eq!(plan.peak_of(Category::Communication), 2 << 22);
        assert_eq!(plan.total(), (16 << 20) + (2 << 22));
    }
}

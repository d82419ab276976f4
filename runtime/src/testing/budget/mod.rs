//! Budgets of a training step: limits of its communication, computation and memory.

mod failure;
mod timed;

use crate::layout::{AxisId, AxisSet};
use crate::train::config::{Config, OutputForm};
use crate::train::explain::{
    CollectiveRow, ExplainedPosition, Explanation, bytes_text, flops_text,
};
use crate::train::{Error, LanguageModel, Trainer};

use failure::{check, largest_collectives, largest_kernels};

pub use timed::TimedBudget;

/// Returns what a training step of a model needs on a mesh, with the flags of a training program, to assert limits on
/// it in a test.
///
/// The step is a dry run, as for `--explain`: it takes no memory, computes nothing, and needs no device, however large
/// model and mesh are. With `--device cuda --dtype bf16` it is that of GPUs. All numbers are those of one rank: at each
/// position along `pp` of the rank with the largest shards, and of them the largest.
///
/// ```
/// use meshwright::models::Llama;
/// use meshwright::testing::budget;
///
/// let step = budget::<Llama>("fsdp=2,tp=2", "--hidden 64 --layers 4 --batch 8 --device cuda --dtype bf16")?;
/// step.bytes_at_most("tp", 3_000_000)
///     .bytes_at_most("fsdp", 1_000_000)
///     .collectives_at_most(90)
///     .memory_at_most(8_000_000)
///     .flops_at_most(1_000_000_000);
/// step.on("h100-dgx")?.exposed_at_most("tp", 0.01);
/// # Ok::<_, meshwright::Error>(())
/// ```
///
/// A limit that is exceeded panics, and names the fields and lines that need most:
///
/// ```should_panic
/// # use meshwright::models::Llama;
/// # use meshwright::testing::budget;
/// budget::<Llama>("tp=2", "--hidden 64").unwrap().bytes_at_most("tp", 1_000);
/// ```
///
/// # Errors
/// Flags that are invalid or contradict each other or the model; of the model or the optimizer.
pub fn budget<M: LanguageModel>(mesh: &str, flags: &str) -> crate::Result<StepBudget> {
    let words = ["budget", "--mesh", mesh].into_iter().chain(flags.split_whitespace());
    StepBudget::of_run::<M>(Config::parse(words).map_err(Error::Config)?)
}

/// What a training step needs. Made by [`budget`].
///
/// Methods that take axes accept their names, such as `tp` or `dp x fsdp`: the process groups with ranks along exactly
/// these axes. They panic if the mesh has no ranks along one of them.
pub struct StepBudget {
    explanation: Explanation,
}

impl StepBudget {
    /// Returns what a step of a run needs.
    ///
    /// # Errors
    /// As [`budget`].
    pub fn of_run<M: LanguageModel>(config: Config) -> crate::Result<StepBudget> {
        let config = Config { explain: Some(OutputForm::Text), ..config };
        Ok(StepBudget { explanation: Trainer::<M>::new(config)?.explanation()? })
    }

    /// Returns the bytes that a rank sends over these axes, messages between pipeline stages included.
    ///
    /// # Panics
    /// If the mesh has no ranks along one of the axes.
    #[track_caller]
    pub fn bytes(&self, axes: &str) -> u64 {
        let axes = self.axes(axes);
        self.largest(|position| self.bytes_over(axes, position)).0
    }

    /// Returns the number of collectives of a rank. Messages between pipeline stages are none.
    pub fn collectives(&self) -> u64 {
        self.largest(collectives_of).0
    }

    /// Returns the peak of the memory of a rank, in bytes.
    pub fn memory(&self) -> u64 {
        self.largest(|position| position.peak.bytes).0
    }

    /// Returns the FLOPs of matmuls and attention of a rank, recomputed ones included.
    pub fn flops(&self) -> u64 {
        self.explanation.flops_of_busiest_rank()
    }

    /// Asserts that a rank sends at most a number of [`bytes`](Self::bytes) over these axes.
    ///
    /// # Panics
    /// If it sends more: the message lists the fields and lines with most bytes. If the mesh has no ranks along one of
    /// the axes.
    #[track_caller]
    pub fn bytes_at_most(&self, axes: &str, bytes: u64) -> &StepBudget {
        let axes = self.axes(axes);
        let (needed, position) = self.largest(|position| self.bytes_over(axes, position));
        let verb = format!("sends over {axes}");
        check([needed, bytes], bytes_text, &self.on_rank(position, &verb), || {
            largest_collectives(self.rows_over(axes, position), bytes_of, bytes_text)
        });
        self
    }

    /// Asserts that a rank has at most a number of [`collectives`](Self::collectives).
    ///
    /// # Panics
    /// If it has more: the message lists the fields and lines with most of them.
    #[track_caller]
    pub fn collectives_at_most(&self, collectives: u64) -> &StepBudget {
        let (needed, position) = self.largest(collectives_of);
        let number = |number: u64| format!("{number} collectives");
        check([needed, collectives], number, &self.on_rank(position, "has"), || {
            largest_collectives(collectives_on(position), calls_of, number)
        });
        self
    }

    /// Asserts that the [`memory`](Self::memory) of a rank has at most a number of bytes.
    ///
    /// # Panics
    /// If it has more: the message names the moment, and lists the largest buffers by layer and function.
    #[track_caller]
    pub fn memory_at_most(&self, bytes: u64) -> &StepBudget {
        let (needed, position) = self.largest(|position| position.peak.bytes);
        let verb = format!("takes, {},", position.peak.moment());
        check([needed, bytes], bytes_text, &self.on_rank(position, &verb), || {
            position.peak.largest_groups()
        });
        self
    }

    /// Asserts that a rank computes at most a number of [`flops`](Self::flops).
    ///
    /// # Panics
    /// If it computes more: the message lists the layers and functions with most of them.
    #[track_caller]
    pub fn flops_at_most(&self, flops: u64) -> &StepBudget {
        let (needed, position) = self.largest(|position| position.log.flops(|_| true));
        let number = |flops: u64| format!("{} FLOPs", flops_text(flops as f64));
        check([needed, flops], number, &self.on_rank(position, "computes"), || {
            largest_kernels(&position.kernels)
        });
        self
    }

    /// Returns the step on a cluster of the catalog, or of a TOML file, to assert limits on its time.
    ///
    /// # Errors
    /// An unknown cluster, one with fewer GPUs than the mesh has ranks, and a GPU without a peak for a dtype of the
    /// step.
    pub fn on(&self, cluster: &str) -> crate::Result<TimedBudget<'_>> {
        TimedBudget::new(self, cluster)
    }

    /// Returns the begin of a message: `a step on rank 3 of tp=4 sends`.
    fn on_rank(&self, position: &ExplainedPosition, verb: &str) -> String {
        format!("a step on rank {} of {} {verb}", position.rank, self.explanation.mesh)
    }

    /// Returns the largest number of all positions along `pp`, and its position.
    fn largest<T: Ord + Copy>(
        &self,
        number: impl Fn(&ExplainedPosition) -> T,
    ) -> (T, &ExplainedPosition) {
        let numbers =
            self.explanation.positions.iter().map(|position| (number(position), position));
        // The first of equal ones.
        let largest = numbers.rev().max_by_key(|(number, _)| *number);
        largest.expect("a mesh has at least one position along pp")
    }

    fn bytes_over(&self, axes: AxisSet, position: &ExplainedPosition) -> u64 {
        self.rows_over(axes, position).map(bytes_of).sum()
    }

    /// Returns the collectives and messages over process groups with ranks along exactly these axes.
    fn rows_over<'a>(
        &self,
        axes: AxisSet,
        position: &'a ExplainedPosition,
    ) -> impl Iterator<Item = &'a CollectiveRow> + use<'a> {
        let mesh = self.explanation.mesh;
        position.collectives.iter().filter(move |row| mesh.axes_in_use(row.axes) == axes)
    }

    /// Returns the axes of a text.
    #[track_caller]
    fn axes(&self, text: &str) -> AxisSet {
        let mesh = &self.explanation.mesh;
        let names = text.split([',', 'x', ' ']).filter(|name| !name.is_empty());
        names.fold(AxisSet::NONE, |axes, name| {
            let axis = AxisId::ALL.into_iter().find(|axis| axis.name() == name);
            match axis.filter(|axis| mesh.degree(*axis) > 1) {
                Some(axis) => axes.union(AxisSet::of(axis)),
                None => panic!("`{text}`: the mesh {mesh} has no ranks along `{name}`"),
            }
        })
    }
}

fn bytes_of(row: &CollectiveRow) -> u64 {
    row.all_bytes().iter().sum()
}

fn calls_of(row: &CollectiveRow) -> u64 {
    row.all_calls() as u64
}

fn collectives_on(position: &ExplainedPosition) -> impl Iterator<Item = &CollectiveRow> {
    position.collectives.iter().filter(|row| !row.is_message())
}

fn collectives_of(position: &ExplainedPosition) -> u64 {
    collectives_on(position).map(calls_of).sum()
}

//! Reports of the steps of a training loop of a program.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::data::Dataset;
use crate::nn::Built;
use crate::tensor::{Mean, Rank};
use crate::train::report::{
    MetricsFiles, MetricsRecorder, OwnMetrics, Progress, StepUsage, UsageStart,
    model_flops_per_token,
};
use crate::train::run::call_all;
use crate::train::{Evaluation, KnownSteps, MetricsFile, Result, StepObserver, StepReport};

/// Minimum time between two progress lines, unless the loop sets another one.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The numbers of a step that the loop knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepNumbers {
    /// Loss of the step before its update. Its count is the number of tokens, or of samples.
    pub loss: Mean,
    /// Norm of the global gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate of the step's update.
    pub lr: f64,
}

/// Reports each step of a training loop of a program as the trainer does: lines and a bar of progress, a metrics file
/// with the same keys, and observers.
///
/// Every rank has one, and calls its methods in the same order; rank 0 prints and writes.
///
/// ```
/// use meshwright::optim::{Sgd, SgdOptions};
/// use meshwright::prelude::*;
/// use meshwright::train::{StepNumbers, StepReports};
///
/// dims! { Batch @ data, Hidden, Ffn }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("m.jsonl");
/// run_on("dp=2", 0, |rank| {
///     let built = build::<Linear<Hidden, Ffn>>(rank, &Sizes::new().with(Hidden, 8).with(Ffn, 4))?;
///     let mut optimizer = Sgd::new(rank, &built.units, SgdOptions::default());
///     let mut reports = StepReports::new(rank, 0..5).with_metrics(&path, &built, 1)?;
///     let batch = |step| Tensor::from_fn(rank, &[4, 8], move |at| (step + at[0] * at[1]) as f32 * 0.1);
///     let loss_of = |x: Tensor<(Batch, Hidden)>| {
///         let y = built.model.forward(&x);
///         Loss::mean_of(&(&y * &y))
///     };
///     for step in 0..5 {
///         reports.begin_step();
///         let loss = loss_of(batch(step));
///         let mean = loss.reduce();
///         let gradients = loss.backward().reduce();
///         let numbers = StepNumbers { loss: mean, grad_norm: gradients.norm(), lr: 1e-3 };
///         optimizer.step(numbers.lr, gradients);
///         if step == 4 {
///             reports.evaluate(|| Ok(loss_of(batch(99)).reduce()))?;
///         }
///         reports.metric("sum", mean.value() * mean.count() as f64)?;
///         reports.end_step(&numbers)?;
///     }
///     reports.finish()
/// })?;
/// # let text = std::fs::read_to_string(&path).unwrap();
/// # assert_eq!(text.lines().count(), 5);
/// # assert!(text.lines().last().unwrap().contains("\"eval_loss\":"), "{text}");
/// # Ok::<_, meshwright::Error>(())
/// ```
pub struct StepReports<'a> {
    rank: Rank,
    /// Steps that are done.
    done: u64,
    steps: u64,
    /// On rank 0.
    progress: Option<Progress>,
    metrics: Option<MetricsRecorder<'a>>,
    dataset: Option<&'a Dataset>,
    observers: Vec<Box<dyn StepObserver + 'a>>,
    step: RunningStep,
}

/// The step that is being trained.
#[derive(Default)]
struct RunningStep {
    /// `None` between two steps.
    start: Option<(Instant, UsageStart)>,
    /// The part before an evaluation.
    seconds: f64,
    usage: StepUsage,
    evaluation: Option<Evaluation>,
    own: OwnMetrics,
}

impl RunningStep {
    fn resume(&mut self, rank: &Rank) {
        self.start = Some((Instant::now(), UsageStart::new(rank)));
    }

    /// Adds the time and the usage since the start.
    #[track_caller]
    fn pause(&mut self, rank: &Rank) {
        let Some((start, usage)) = self.start.take() else {
            panic!("`begin_step` is called before each step")
        };
        self.seconds += start.elapsed().as_secs_f64();
        self.usage.add(&usage.end(rank));
    }
}

impl<'a> StepReports<'a> {
    /// Creates the reports of `steps`: the steps that are done when the loop begins, and those in total.
    pub fn new(rank: &Rank, steps: Range<u64>) -> StepReports<'a> {
        StepReports {
            rank: rank.clone(),
            done: steps.start,
            steps: steps.end,
            progress: None,
            metrics: None,
            dataset: None,
            observers: Vec::new(),
            step: RunningStep::default(),
        }
        .log_every(LINE_EVERY)
    }

    /// Prints lines of progress at least `time` apart; 10 s by default.
    #[must_use]
    pub fn log_every(mut self, time: Duration) -> Self {
        let is_first = self.rank.index() == 0;
        self.progress = is_first.then(|| Progress::new(self.done, self.steps, time));
        self
    }

    /// Writes a line of metrics for each step to the file at `path`, as `--metrics` does: a loop from step 0 moves
    /// earlier ones aside, another one continues them. `mfu` is that of the model in sequences of `seq` tokens; without
    /// sequences, `seq` is 1. Every rank calls it.
    ///
    /// # Errors
    /// On rank 0: a file with other content than metrics, one to which another run writes, and one that cannot be
    /// written.
    pub fn with_metrics<M>(
        mut self,
        path: impl AsRef<Path>,
        built: &Built<M>,
        seq: usize,
    ) -> Result<Self> {
        let run = KnownSteps { done: self.done, total: self.steps, tokens: None };
        let is_first = self.rank.index() == 0;
        let lines = is_first.then(|| MetricsFile::open(path.as_ref(), run)).transpose()?;
        let files = Arc::new(Mutex::new(MetricsFiles { lines, ..MetricsFiles::default() }));
        let flops = model_flops_per_token(built, seq);
        self.metrics = Some(MetricsRecorder::new(&self.rank, flops, self.dataset, None, files));
        Ok(self)
    }

    /// Reports the epochs of `dataset`, from which each step takes one batch.
    #[must_use]
    pub fn with_data(mut self, dataset: &'a Dataset) -> Self {
        self.dataset = Some(dataset);
        if let Some(metrics) = &mut self.metrics {
            metrics.dataset = Some(dataset);
        }
        self
    }

    /// Adds an observer of the steps.
    #[must_use]
    pub fn on_step(mut self, observer: impl StepObserver + 'a) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Begins a step: its time and its communication count from now on. Every rank calls it before it reads its batch.
    pub fn begin_step(&mut self) {
        self.step = RunningStep::default();
        for observer in &mut self.observers {
            observer.begin(&self.rank, self.done + 1);
        }
        self.step.resume(&self.rank);
    }

    /// Adds a metric of the program to the step, as [`StepReport::metric`]: rank 0 writes its value.
    ///
    /// # Errors
    /// As [`StepReport::metric`].
    pub fn metric(&self, name: &str, value: f64) -> Result<()> {
        self.step.own.add(name, value)
    }

    /// Evaluates the model by `loss`, without a tape and without dropout, and adds the result to the step, whose time
    /// and communication do not count it. Every rank calls it between the update of the step and its end.
    ///
    /// # Errors
    /// As `loss`.
    #[track_caller]
    pub fn evaluate(&mut self, loss: impl FnOnce() -> Result<Mean>) -> Result<Mean> {
        self.step.pause(&self.rank);
        let start = Instant::now();
        let loss = self.rank.evaluate(loss)?;
        self.step.evaluation = Some(Evaluation {
            step: self.done + 1,
            loss: loss.value(),
            targets: loss.count(),
            bits_per_byte: None,
            is_best: false,
            seconds: start.elapsed().as_secs_f64(),
        });
        self.step.resume(&self.rank);
        Ok(loss)
    }

    /// Ends the step with its `numbers`, which are the same on all ranks, and reports it. Every rank calls it after its
    /// update, and before it saves.
    ///
    /// # Errors
    /// Of the observers, and of the communication. Metrics that cannot be written are an error of
    /// [`finish`](Self::finish).
    ///
    /// # Panics
    /// If the step was not [begun](Self::begin_step).
    #[track_caller]
    pub fn end_step(&mut self, numbers: &StepNumbers) -> Result<()> {
        self.step.pause(&self.rank);
        self.done += 1;
        let RunningStep { seconds, usage, evaluation, own, .. } = std::mem::take(&mut self.step);
        let report = StepReport {
            rank: &self.rank,
            step: self.done,
            loss: numbers.loss.value(),
            grad_norm: numbers.grad_norm,
            lr: numbers.lr,
            tokens: numbers.loss.count(),
            positions: numbers.loss.count(),
            seconds,
            attention_balance: None,
            save_seconds: None,
            save_bytes: None,
            save_failed: None,
            skipped: None,
            noise_scale: None,
            evaluation,
            schedule: None,
            sources: None,
            usage,
            own,
        };
        let mut observers =
            all_observers(&mut self.observers, &mut self.metrics, &mut self.progress);
        call_all(&mut observers, |observer| observer.end(&report))
    }

    /// Ends the reports after the last step. Every rank calls it.
    ///
    /// # Errors
    /// Of the observers, and metrics that could not be written.
    pub fn finish(&mut self) -> Result<()> {
        let mut observers =
            all_observers(&mut self.observers, &mut self.metrics, &mut self.progress);
        call_all(&mut observers, |observer| observer.finish(&self.rank))
    }
}

/// Returns all observers in the order of their calls: those of the program add metrics.
fn all_observers<'o, 'a: 'o>(
    own: &'o mut [Box<dyn StepObserver + 'a>],
    metrics: &'o mut Option<MetricsRecorder<'a>>,
    progress: &'o mut Option<Progress>,
) -> Vec<&'o mut (dyn StepObserver + 'o)> {
    let own = own.iter_mut().map(|observer| &mut **observer as &mut (dyn StepObserver + 'o));
    own.chain([metrics as _, progress as _]).collect()
}

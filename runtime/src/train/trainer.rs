//! The trainer: the entry point of a training program.

mod from_args;
mod mesh_choice;
mod reports;

use std::marker::PhantomData;
use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::comm::__internal::run_reports::report_start;
use crate::comm::{LaunchOptions, RankComms, launch_coded, launch_rank};
use crate::os::exit_code::exit_on_panic;
use crate::os::{ignore_file_size_signal, watch_stop_signals};
use crate::tensor::Rank;
use crate::trace::Tracer;
use meshwright_sim::cluster::SizedCluster;

use super::auto_batch::{choose_sizes, limit_batch};
use super::config::{Config, ConfigError, MeshSetting, ModelSource, RunSettings};
use super::console::print_line;
use super::flight::{announce_flight, flight_folder};
use super::hub::fetch_models;
use super::machine::{Machine, await_first, open_machine, require_same_settings};
use super::page::DryRunFiles;
use super::plan::{Plan, PreparedOutputs, open_resumed, take_saved_settings, with_vocab_of_data};
use super::record::{MeasuredSteps, Measurements, StepTimer};
use super::report::{Prediction, given_cluster, output_lines};
use super::run::{ObserverFactory, RankLoop, RunEnd, Shared, begin_steps, start_clock};
use super::task::{ConfigOf, NextToken};
use super::{Error, Result, StepObserver, Summary, Task};

use mesh_choice::choose_on_machine;
use reports::{print_plan, print_report};

/// Trains a language model `M` with the settings of a [`Config`], to predict the next token.
///
/// ```text
/// fn main() -> meshwright::Result<()> {
///     Trainer::<Llama>::from_args()?.run()
/// }
/// ```
pub type Trainer<M> = TaskTrainer<NextToken<M>>;

/// Trains the model of a task `T` with the settings of a [`Config`].
///
/// ```text
/// fn main() -> meshwright::Result<()> {
///     TaskTrainer::<MaskedLm<Bert>>::from_args()?.run()
/// }
/// ```
pub struct TaskTrainer<T> {
    plan: Plan,
    shared: Shared,
    outputs: PreparedOutputs,
    /// The files of `--explain` and `--simulate`.
    files: DryRunFiles,
    observers: Vec<ObserverFactory>,
    task: PhantomData<fn() -> T>,
}

/// Prepares the process of a program that trains, before anything starts a thread.
pub(super) fn begin_program() {
    start_clock();
    report_start();
    ignore_file_size_signal();
    watch_stop_signals();
    #[cfg(feature = "cuda")]
    meshwright_cuda::native::request_hardware_queues();
}

impl<T: Task> TaskTrainer<T> {
    /// Creates a trainer with these settings, and with the settings of the checkpoint of `--resume` that they do not
    /// override. A mesh is chosen if they leave it open: `--mesh auto=8`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and the reasons against each mesh if none fits. A `--plan` is no run: its report is a
    /// [`ConfigError::Asked`].
    pub fn with_settings(settings: RunSettings) -> Result<TaskTrainer<T>> {
        let (mut settings, resumed) = match settings.plan {
            // Which refuses --resume.
            Some(_) => (settings, None),
            None => take_saved_settings::<ConfigOf<T>>(settings)?,
        };
        let accepted = settings.accept_keys.clone().unwrap_or_default();
        let paths = (settings.init_from.as_mut(), settings.tokenizer.as_mut());
        fetch_models::<ConfigOf<T>>(paths.0, paths.1, &accepted)?;
        let mut settings = with_vocab_of_data::<T>(settings)?;
        let auto = settings.take_auto_sizes()?;
        if !T::READS_TOKENS && settings.is_given("sample-tokens") && settings.sample_tokens > 0 {
            return Err(Error::Input(format!(
                "--sample-tokens: the task {} continues no text; leave it out",
                T::NAME
            )));
        }
        if let Some(on) = &settings.plan {
            return Err(Error::Config(ConfigError::Asked(print_plan::<T>(&settings, on)?)));
        }
        let mut settings = settings.for_simulation();
        let mut files = DryRunFiles::default();
        if settings.is_dry_run() {
            let trace = settings.trace.as_deref().filter(|_| settings.simulate.is_some());
            files = DryRunFiles::check(settings.report.as_deref(), trace)?;
        }
        if let (Some(SizedCluster { gpus, .. }), None) = (&settings.simulate, &settings.mesh) {
            settings.mesh = Some(MeshSetting::Auto(Some(*gpus)));
        }
        // A preflight refuses the choice of a mesh.
        let (Some(MeshSetting::Auto(ranks)), None) = (settings.mesh, settings.preflight) else {
            let config = settings.resolve()?.for_preflight();
            let machine = open_machine(&config)?;
            let config = choose_sizes::<T>(config, auto, &*machine)
                .inspect_err(|error| machine.announce_failure(error))?;
            return TaskTrainer::prepare(config, machine, resumed, files, auto.batch);
        };
        let (config, machine) = choose_on_machine::<T>(&settings, ranks, resumed.is_some())?;
        TaskTrainer::prepare(config, machine, resumed, files, false)
    }

    /// Creates a trainer with these settings. Opens every file that the run reads and checks every size of the model,
    /// then opens every file that it writes.
    ///
    /// # Errors
    /// Settings that contradict each other, the files or the model, and files that cannot be used.
    pub fn new(config: Config) -> Result<TaskTrainer<T>> {
        let config = config.for_preflight();
        let machine = open_machine(&config)?;
        TaskTrainer::on(config, machine)
    }

    /// Creates a trainer on a user-defined machine instead of that of `--device`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(mut config: Config, machine: Box<dyn Machine>) -> Result<TaskTrainer<T>> {
        let init_from = match &mut config.model {
            ModelSource::InitFrom(folder) => Some(folder),
            ModelSource::Architecture(_) | ModelSource::New(_) => None,
        };
        fetch_models::<ConfigOf<T>>(init_from, config.tokenizer.as_mut(), &config.accept_keys)
            .inspect_err(|error| machine.announce_failure(error))?;
        let resumed = open_resumed::<ConfigOf<T>>(&config)
            .inspect_err(|error| machine.announce_failure(error))?;
        let mut files = DryRunFiles::default();
        if config.is_dry_run() {
            files = DryRunFiles::check(config.report.as_deref(), config.trace.as_deref())?;
        }
        TaskTrainer::prepare(config, machine, resumed, files, false)
    }

    /// Creates a trainer that resumes from `resumed`, if there is a checkpoint; on no more than all of the data in each
    /// step if the batch is chosen.
    fn prepare(
        config: Config,
        machine: Box<dyn Machine>,
        resumed: Option<Checkpoint>,
        files: DryRunFiles,
        chooses_batch: bool,
    ) -> Result<TaskTrainer<T>> {
        start_clock();
        report_start();
        let machine: Arc<dyn Machine> = Arc::from(machine);
        let prepare = || {
            if let Some(store) = machine.store() {
                require_same_settings(store, &config)?;
            }
            let run = (config.mesh.world_size(), config.dtype.dtype(), config.device);
            given_cluster(config.cluster.as_ref(), run)?;
            let mut plan = Plan::new::<T>(config.for_preflight(), Arc::clone(&machine), resumed)?;
            if chooses_batch && let Some(config) = limit_batch(&plan) {
                plan = Plan::new::<T>(config, Arc::clone(&machine), plan.resume)?;
            }
            let mut outputs = if plan.config.writes_nothing() {
                PreparedOutputs::default()
            } else {
                plan.prepare_outputs()?
            };
            let shared = Shared::new(std::mem::take(&mut outputs.metrics));
            // Other processes wait for this one from now on, so it ends with them.
            if plan.machine.own_rank().is_some() {
                begin_steps(&plan);
            }
            Ok(TaskTrainer {
                plan,
                shared,
                outputs,
                files,
                observers: Vec::new(),
                task: PhantomData,
            })
        };
        prepare().inspect_err(|error| machine.announce_failure(error))
    }

    /// Adds an observer of the steps, which `make` creates on the thread of each rank, before its first step.
    ///
    /// Observers are called in the order in which they were added, before progress and metrics, to which they
    /// [add](super::StepReport::metric) numbers. They make no step
    /// wait for the device, and `--explain` and `--preflight` do not call them. An error of `make` ends the run.
    ///
    /// ```
    /// use meshwright::models::llama::Llama;
    /// use meshwright::prelude::*;
    /// use meshwright::train::{Config, StepObserver, StepReport};
    ///
    /// /// Prints the loss of every tenth step.
    /// struct LossLog;
    ///
    /// impl StepObserver for LossLog {
    ///     fn end(&mut self, report: &StepReport<'_>) -> meshwright::Result<()> {
    ///         if report.step % 10 == 0 {
    ///             println!("step {}: {:.3} nats", report.step, report.loss);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let flags = "train --mesh dp=2 --steps 20 --layers 1 --hidden 16 --heads 2 --seq 16 --sample-tokens 0";
    /// let config = Config::parse(flags.split(' '))?;
    /// let trainer = Trainer::<Llama>::new(config)?;
    /// // Of rank 0 only.
    /// trainer.on_step(|rank| Ok((rank.index() == 0).then_some(LossLog))).train()?;
    /// # Ok::<_, meshwright::Error>(())
    /// ```
    #[must_use]
    pub fn on_step<O: StepObserver + 'static>(
        mut self,
        make: impl Fn(&Rank) -> Result<O> + Send + Sync + 'static,
    ) -> TaskTrainer<T> {
        self.observers.push(Box::new(move |rank| Ok(Box::new(make(rank)?))));
        self
    }

    /// Trains, and prints a summary with a sampled continuation; with `--explain`, prints the
    /// [work](Self::explain) of a step instead, and with `--preflight` the result of the
    /// [comparison](Self::preflight) with one rank. A failure ends the process with one message on stderr and the [exit
    /// code](Error::exit_code) of the error.
    ///
    /// # Errors
    /// None at present; [`train`](Self::train) returns them.
    pub fn run(self) -> Result<()> {
        // Programs that make their settings themselves have not called `from_args`.
        watch_stop_signals();
        exit_on_panic(|| self.run_to_end())
    }

    fn run_to_end(self) -> Result<()> {
        // Of several processes, only that of rank 0 prints.
        let prints = self.plan.machine.own_rank().is_none_or(|rank| rank == 0);
        if prints && !self.plan.config.quiet {
            print_line(&self.plan.describe());
        }
        let printed = if self.plan.config.is_dry_run() {
            if prints { self.print_dry_run() } else { Ok(()) }
        } else if self.plan.config.preflight.is_some() {
            self.preflight().and_then(|line| print_report(&format!("{line}\n")))
        } else {
            let trained = self.train_on_mesh();
            trained.and_then(|summary| if prints { summary.print(&self.plan) } else { Ok(()) })
        };
        printed.or_else(|error| {
            let machine = (!prints).then(|| Arc::clone(&self.plan.machine));
            // The exit of the process would leave the lock file.
            drop(self);
            if !prints && is_of_all_ranks(&error) {
                machine
                    .iter()
                    .filter_map(|machine| machine.store())
                    .for_each(|store| await_first(store));
                std::process::exit(i32::from(error.exit_code()));
            }
            error.exit()
        })
    }

    /// Trains on the ranks of the mesh, which are threads of this process.
    ///
    /// # Errors
    /// The error of the rank that failed first and stopped the others; [`Error::Stopped`] after `--stop-after`;
    /// `--explain`, which trains nothing.
    pub fn train(self) -> Result<Summary> {
        let reason = if self.plan.config.explain.is_some() {
            "--explain: lists collectives instead of training; call `Trainer::explain`, or leave it out"
        } else if self.plan.config.simulate.is_some() {
            "--simulate: simulates a step instead of training; call `Trainer::simulate`, or leave it out"
        } else if self.plan.config.preflight.is_some() {
            "--preflight: compares steps instead of training; call `Trainer::preflight`, or leave it out"
        } else {
            return self.train_on_mesh();
        };
        Err(Error::Input(reason.to_owned()))
    }

    fn train_on_mesh(&self) -> Result<Summary> {
        let TaskTrainer { plan, shared, outputs, observers, .. } = self;
        let PreparedOutputs { trace, checkpoints, record, .. } = outputs;
        // The events of a device measure its calls.
        let is_traced =
            trace.is_some() || plan.config.record.is_some() && plan.machine.device().is_gpu;
        let tracer = is_traced.then(Tracer::new);
        let timeout = plan.config.comm_timeout.0;
        let flight = flight_folder(plan);
        let options = LaunchOptions {
            timeout,
            tracer: tracer.clone(),
            flight: flight.clone(),
            ..LaunchOptions::default()
        };
        let mesh = &plan.config.mesh;
        let measurements = Measurements::default();
        let body = |comms: RankComms| {
            if !plan.is_recorded(comms.rank()) {
                return RankLoop::<T>::new(plan, shared, comms)?.run_steps(observers, None);
            }
            let mut timer = None;
            let create = |comms, backend, settings| {
                let (rank, created) = StepTimer::observe(comms, backend, settings);
                timer = Some(created);
                rank
            };
            let mut run = RankLoop::<T>::on_rank(plan, shared, comms, create)?;
            run.timer.clone_from(&timer);
            let measured = timer.map(|timer| MeasuredSteps::new(timer, plan, &measurements));
            run.run_steps(observers, measured)
        };
        let outcome = match plan.machine.own_rank() {
            Some(rank) => launch_rank(&options, mesh, rank, Error::exit_code, body),
            // All ranks return the same summary, and a mesh has at least one rank.
            None => launch_coded(&options, mesh, Error::exit_code, body)
                .map(|mut all| all.swap_remove(0)),
        };
        // The trace is also written after a failure, to show its cause.
        let traced = match (&tracer, trace) {
            (Some(tracer), Some(file)) => file.write_events(tracer),
            _ => Ok(()),
        };
        match outcome {
            Ok(RunEnd::Complete(mut summary)) => {
                traced?;
                if let Some(file) = record {
                    file.write_record(plan, measurements)?;
                }
                if plan.machine.own_rank().is_none_or(|rank| rank == 0) {
                    summary.prediction = Prediction::of_plan::<T>(plan);
                }
                Ok(*summary)
            }
            Ok(RunEnd::Stopped(report)) => {
                traced?;
                Err(Error::Stopped(report))
            }
            Err(error) => {
                if let Some(checkpoints) = checkpoints {
                    checkpoints.abandon();
                }
                flight.iter().for_each(|folder| announce_flight(plan, folder));
                let error = Error::of_ranks(error);
                Err(if shared.has_failed_in_sampling(plan) {
                    error.of_sample(output_lines(&plan.config))
                } else {
                    error.with_memory_advice(&plan.config)
                })
            }
        }
    }
}

/// Returns true for an error that the ranks have agreed on: each process has it, and that of rank 0 prints it.
fn is_of_all_ranks(error: &Error) -> bool {
    matches!(
        error,
        Error::Stopped(_)
            | Error::Diverged(_)
            | Error::ReplicasDiffer(_)
            | Error::DataEnded { .. }
            | Error::Save { .. }
    )
}

//! The trainer: one command line, any language model, any mesh.

use std::marker::PhantomData;

use crate::checkpoint::Writer;
use crate::comm::{LaunchOptions, launch_rank, launch_with};

use crate::trace::Tracer;

use super::config::Config;
use super::machine::{Machine, machine_of};
use super::plan::Plan;
use super::progress::say;
use super::rank_loop::{RankLoop, Shared};
use super::{Error, LanguageModel, Optimizers, Result, Summary};

/// Trains a `M` as a [`Config`] says.
///
/// ```text
/// fn main() -> meshwright::Result<()> {
///     Trainer::<Llama>::from_args()?.run()
/// }
/// ```
pub struct Trainer<M> {
    plan: Plan,
    shared: Shared,
    model: PhantomData<M>,
}

impl<M: LanguageModel> Trainer<M> {
    /// A trainer with the settings of the command line.
    ///
    /// Bad settings end the process: one message on stderr, code 2. `--help` prints and ends it too.
    ///
    /// # Errors
    /// None at present; the type leaves room for programs that would rather go on.
    pub fn from_args() -> Result<Trainer<M>> {
        Trainer::from_args_with(&Optimizers::default())
    }

    /// A trainer with the settings of the command line, with `--optimizer` one of `optimizers`: those of the library, and
    /// those that the program has registered.
    ///
    /// # Errors
    /// As [`from_args`](Self::from_args).
    pub fn from_args_with(optimizers: &Optimizers) -> Result<Trainer<M>> {
        let config = Config::from_args_with(optimizers).map_err(Error::Config);
        Ok(config.and_then(Trainer::new).unwrap_or_else(|error| error.exit()))
    }

    /// A trainer with these settings. Every file that the run reads is opened and every size of the model is checked
    /// first; then every file that it writes is opened.
    ///
    /// # Errors
    /// Settings that contradict each other, the files or the model, and files that cannot be used.
    pub fn new(config: Config) -> Result<Trainer<M>> {
        let machine = machine_of(&config)?;
        Trainer::on(config, machine)
    }

    /// As [`new`](Self::new), on a machine of your own instead of the one that the settings ask for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(config: Config, machine: Box<dyn Machine>) -> Result<Trainer<M>> {
        let plan = Plan::new::<M>(config, machine)?;
        plan.prepare_outputs()?;
        let shared = Shared::new(&plan)?;
        Ok(Trainer { plan, shared, model: PhantomData })
    }

    /// Trains, prints what came of it, and samples a continuation. A failure ends the process: one message on stderr,
    /// code 2.
    ///
    /// # Errors
    /// None at present; see [`train`](Self::train) for a form that returns them.
    pub fn run(self) -> Result<()> {
        // Of several processes that of rank 0 speaks.
        let speaks = self.plan.machine.own_rank().is_none_or(|rank| rank == 0);
        if speaks {
            say(&self.plan.describe());
        }
        match self.train_on_mesh() {
            Ok(summary) if speaks => summary.print(&self.plan),
            Ok(_) => {}
            Err(error) => error.exit(),
        }
        Ok(())
    }

    /// Trains on the ranks of the mesh, which are threads of this process.
    ///
    /// # Errors
    /// Of the rank that failed first; the others are stopped by it.
    pub fn train(self) -> Result<Summary> {
        self.train_on_mesh()
    }

    fn train_on_mesh(&self) -> Result<Summary> {
        let Trainer { plan, shared, .. } = self;
        let tracer = plan.config.trace.as_ref().map(|_| Tracer::new());
        let options = LaunchOptions { tracer: tracer.clone(), ..LaunchOptions::default() };
        let mesh = &plan.config.mesh;
        let body = |comms| RankLoop::<M>::new(plan, shared, comms)?.run();
        let outcome = match plan.machine.own_rank() {
            Some(rank) => launch_rank(&options, mesh, rank, body),
            // The summaries of all ranks are the same, and a mesh has at least one.
            None => launch_with(&options, mesh, body).map(|mut all| all.swap_remove(0)),
        };
        // What led to a failure is worth a look, too.
        let traced = match (&tracer, &plan.trace_file()) {
            (Some(tracer), Some(path)) => tracer.write(path),
            _ => Ok(()),
        };
        match outcome {
            Ok(summary) => {
                traced.map_err(|error| Error::Input(format!("--trace: {error}")))?;
                Ok(summary)
            }
            Err(error) => {
                if let Some(save) = &plan.config.save {
                    Writer::abandon(&save.dir);
                }
                Err(Error::of_ranks(error).advised(&plan.config))
            }
        }
    }
}

//! Trainers with the settings of the command line.

use crate::data::{ExampleSource, RowSource};
use crate::os::exit_code::exit_on_panic;
use crate::train::config::RunSettings;
use crate::train::task::BothFlags;
use crate::train::{Error, Optimizers, Result, Task};

use super::{TaskTrainer, begin_program};

impl<T: Task> TaskTrainer<T> {
    /// Creates a trainer with the settings of the command line.
    ///
    /// Invalid settings end the process with one message on stderr and the [exit code](Error::exit_code) of the error.
    /// `--help` prints its text and ends it too.
    ///
    /// # Errors
    /// None at present; the type is reserved.
    pub fn from_args() -> Result<TaskTrainer<T>> {
        TaskTrainer::from_args_with(&Optimizers::default())
    }

    /// A trainer with the settings of the command line, with `--optimizer` one of `optimizers`: the library's, and the
    /// ones that the program has registered.
    ///
    /// # Errors
    /// As [`from_args`](Self::from_args).
    pub fn from_args_with(optimizers: &Optimizers) -> Result<TaskTrainer<T>> {
        Ok(TaskTrainer::from_args_and::<()>(optimizers)?.0)
    }

    /// A trainer with the settings of the command line, and the flags of the program: the fields of a struct with
    /// `#[derive(clap::Args)]` of clap 4. `--help` lists them under a heading of their own.
    ///
    /// A flag with the name of a setting ends the program when it starts, as does one without a name (`#[arg(long)]`).
    /// Own flags are no keys of `--config` files, and checkpoints do not keep them: a run that is resumed takes them
    /// from its command line again, and does not compare them.
    ///
    /// ```text
    /// #[derive(clap::Args)]
    /// struct Flags {
    ///     /// Name of the run in the log
    ///     #[arg(long, value_name = "NAME", default_value = "first")]
    ///     tag: String,
    /// }
    ///
    /// fn main() -> meshwright::Result<()> {
    ///     let (trainer, flags) = Trainer::<Llama>::from_args_and::<Flags>(&Optimizers::default())?;
    ///     println!("run {}", flags.tag);
    ///     trainer.run()
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`from_args`](Self::from_args).
    pub fn from_args_and<A: clap::Args>(optimizers: &Optimizers) -> Result<(TaskTrainer<T>, A)> {
        TaskTrainer::from_args_to(optimizers, |settings, _| Ok(settings))
    }

    /// A trainer as [`from_args_and`](Self::from_args_and), on rows that the program makes from its flags, instead of
    /// `--data`.
    ///
    /// ```text
    /// let rows = |flags: &Flags| Ok(Repetition { digits: flags.digits });
    /// let (trainer, _) = Trainer::<Llama>::from_args_on_rows(&Optimizers::default(), rows)?;
    /// trainer.run()
    /// ```
    ///
    /// # Errors
    /// As [`from_args`](Self::from_args); an error of `rows` ends the process, too.
    pub fn from_args_on_rows<A: clap::Args, S: RowSource + 'static>(
        optimizers: &Optimizers,
        rows: impl FnOnce(&A) -> Result<S>,
    ) -> Result<(TaskTrainer<T>, A)> {
        TaskTrainer::from_args_to(
            optimizers,
            |settings, flags| Ok(settings.with_rows(rows(flags)?)),
        )
    }

    /// A trainer as [`from_args_and`](Self::from_args_and), on examples that the program makes from its flags, instead
    /// of `--data`.
    ///
    /// # Errors
    /// As [`from_args`](Self::from_args); an error of `examples` ends the process, too.
    pub fn from_args_on_examples<A: clap::Args, S: ExampleSource + 'static>(
        optimizers: &Optimizers,
        examples: impl FnOnce(&A) -> Result<S>,
    ) -> Result<(TaskTrainer<T>, A)> {
        TaskTrainer::from_args_to(optimizers, |settings, flags| {
            Ok(settings.with_examples(examples(flags)?))
        })
    }

    /// Creates a trainer with the settings that `change` makes of those of the command line.
    fn from_args_to<A: clap::Args>(
        optimizers: &Optimizers,
        change: impl FnOnce(RunSettings, &A) -> Result<RunSettings>,
    ) -> Result<(TaskTrainer<T>, A)> {
        begin_program();
        exit_on_panic(|| {
            type Both<T, A> = BothFlags<<T as Task>::Flags, A>;
            let read = RunSettings::read_and::<Both<T, A>>(std::env::args_os(), optimizers);
            let trainer = read.map_err(Error::Config).and_then(|(settings, flags)| {
                let BothFlags(of_task, own) = flags;
                let settings = settings.with_task_flags(of_task);
                Ok((TaskTrainer::with_settings(change(settings, &own)?)?, own))
            });
            Ok(trainer.unwrap_or_else(|error| error.exit()))
        })
    }
}

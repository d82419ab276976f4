//! Programs that train several tasks, each for models of several families.

use std::ffi::OsString;

use crate::os::exit_code::exit_on_panic;

use super::config::RunSettings;
use super::families::{Train, pick, unknown_family};
use super::task::{BothFlags, Task, TaskList, WithTask};
use super::trainer::{TaskTrainer, begin_program};
use super::{Error, FamilyList, Optimizers, Result};

/// Trains the task that `--task` names, one of `L`, for the model of the command line; without `--task`, the next token
/// for a language model of `F`. The family is picked as by [`train_family_of`](super::train_family_of).
///
/// ```no_run
/// use meshwright::models::Families;
/// use meshwright::tasks::Tasks;
///
/// fn main() -> meshwright::Result<()> {
///     meshwright::train::train_task_of::<Tasks, Families>(&Default::default())
/// }
/// ```
///
/// A failure ends the process with one message on stderr and the [exit code](Error::exit_code) of the error.
///
/// # Errors
/// None at present; the type is reserved.
pub fn train_task_of<L: TaskList, F: FamilyList>(optimizers: &Optimizers) -> Result<()> {
    begin_program();
    exit_on_panic(|| {
        let words: Vec<OsString> = std::env::args_os().collect();
        let trained = match named_task(&words) {
            None => train_language_model::<L, F>(words, optimizers),
            Some(name) => train_task::<L, F>(&name, words, optimizers),
        };
        trained.unwrap_or_else(|error| error.exit());
        Ok(())
    })
}

/// Flags of the program.
#[derive(clap::Args)]
struct TaskFlags {
    /// Task that the model is trained for, such as masked-lm; by default the next token
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
}

/// Returns the value of `--task`.
fn named_task(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word.strip_prefix("--task") {
            Some("") => return words.next().map(str::to_owned),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}

fn train_language_model<L: TaskList, F: FamilyList>(
    words: Vec<OsString>,
    optimizers: &Optimizers,
) -> Result<()> {
    let read = RunSettings::read_and::<TaskFlags>(words, optimizers);
    let (mut settings, _) = read.map_err(Error::Config)?;
    let language_models = F::names();
    let mut known = language_models.clone();
    let of_tasks = L::entries().into_iter().flat_map(|(_, families)| families);
    known.extend(of_tasks.filter(|family| !language_models.contains(family)));
    let family = pick(&mut settings, &known)?;
    if let Some(trained) = F::with(&family, Train(settings)) {
        return trained;
    }
    match tasks_of::<L>(&family) {
        tasks if tasks.is_empty() => Err(unknown_family(&family, &known)),
        tasks => Err(Error::Input(format!(
            "--task: a model of the family {family} predicts no next token; name its task, --task {}",
            tasks.join(" or --task ")
        ))),
    }
}

fn train_task<L: TaskList, F: FamilyList>(
    name: &str,
    words: Vec<OsString>,
    optimizers: &Optimizers,
) -> Result<()> {
    let mut known: Vec<&'static str> = Vec::new();
    for (task, families) in L::entries() {
        let new = families.iter().filter(|family| task == name && !known.contains(family));
        let new: Vec<_> = new.copied().collect();
        known.extend(new);
    }
    let Some(first) = known.first() else {
        let mut names: Vec<_> = L::entries().into_iter().map(|(task, _)| task).collect();
        names.dedup();
        return Err(Error::Input(format!(
            "--task: \"{name}\" is none of the tasks here: {}; leave it out to train the next token",
            names.join(", ")
        )));
    };
    let mut settings = L::with(name, first, ReadSettings { words, optimizers })
        .unwrap_or_else(|| unreachable!("the list has its entries"))?;
    // A model of another task has a message of its own.
    let mut all = known.clone();
    let others = L::entries().into_iter().flat_map(|(_, families)| families).copied();
    all.extend(others.chain(F::names()).filter(|family| !known.contains(family)));
    let family = pick(&mut settings, &all)?;
    let other_task = || match tasks_of::<L>(&family) {
        _ if !all.contains(&&*family) => unknown_family(&family, &all),
        tasks if tasks.is_empty() => Error::Input(format!(
            "--task: a model of the family {family} predicts the next token, and is not trained for {name}; leave \
             --task out, or use a model of {}",
            known.join(" or ")
        )),
        tasks => Error::Input(format!(
            "--task: a model of the family {family} is not trained for {name}, but for {}; name one of these, or use a \
             model of {}",
            tasks.join(", "),
            known.join(" or ")
        )),
    };
    L::with(name, &family, TrainTask(settings)).ok_or_else(other_task)?
}

/// Returns the tasks of a family.
fn tasks_of<L: TaskList>(family: &str) -> Vec<&'static str> {
    let mut tasks: Vec<_> = L::entries()
        .into_iter()
        .filter(|(_, families)| families.contains(&family))
        .map(|(task, _)| task)
        .collect();
    tasks.dedup();
    tasks
}

/// Reads the settings of a task, with its flags.
struct ReadSettings<'a> {
    words: Vec<OsString>,
    optimizers: &'a Optimizers,
}

impl WithTask for ReadSettings<'_> {
    type Out = Result<RunSettings>;

    fn with<T: Task>(self) -> Result<RunSettings> {
        type Flags<T> = BothFlags<<T as Task>::Flags, TaskFlags>;
        let read = RunSettings::read_and::<Flags<T>>(self.words, self.optimizers);
        let (settings, BothFlags(of_task, _)) = read.map_err(Error::Config)?;
        Ok(settings.with_task_flags(of_task))
    }
}

/// Trains a task with these settings.
struct TrainTask(RunSettings);

impl WithTask for TrainTask {
    type Out = Result<()>;

    fn with<T: Task>(self) -> Result<()> {
        TaskTrainer::<T>::with_settings(self.0)?.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_is_named_by_either_form() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(named_task(&words("t --task a --seq 1")).as_deref(), Some("a"));
        assert_eq!(named_task(&words("t --task=b")).as_deref(), Some("b"));
        assert_eq!(named_task(&words("t --tasks c")), None);
    }
}

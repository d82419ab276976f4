//! A task of any type, as plans and settings hold it.

use std::any::Any;
use std::sync::Arc;

use crate::train::config::Config;
use crate::train::{Error, Result};

use super::{ConfigOf, Task, TaskSetup};

/// A task whose type the code that needs it knows.
#[derive(Clone)]
pub struct AnyTask(Arc<dyn Any + Send + Sync>);

impl AnyTask {
    /// Opens the task of a run for a model of `family`, in which it sets what its flags decide.
    ///
    /// # Errors
    /// As [`Task::configure`] and [`Task::open`].
    pub fn open<T: Task>(config: &Config, family: &mut ConfigOf<T>) -> Result<AnyTask> {
        let given = config.task.as_ref().and_then(|input| input.flags.clone());
        let flags = match given {
            Some(flags) => flags.downcast::<T::Flags>().map_err(|_| {
                Error::Input(format!("--task: the flags are not those of the task {}", T::NAME))
            })?,
            None => Arc::new(default_flags::<T::Flags>().map_err(Error::Input)?),
        };
        T::configure(family, &flags).map_err(Error::Input)?;
        let task = T::open(&TaskSetup { config, family, flags: &*flags }).map_err(Error::Input)?;
        Ok(AnyTask(Arc::new(task)))
    }

    /// Returns the task.
    ///
    /// # Panics
    /// If it has another type: a fault of the calling code.
    pub fn get<T: Task>(&self) -> Arc<T> {
        Arc::clone(&self.0).downcast().unwrap_or_else(|_| unreachable!("a plan is of one task"))
    }
}

/// Returns the flags of a task that are not given.
fn default_flags<F: clap::Args>() -> std::result::Result<F, String> {
    let command = F::augment_args(clap::Command::new("task").no_binary_name(true));
    let matches = command.try_get_matches_from(std::iter::empty::<&str>());
    let matches = matches.map_err(|error| error.to_string())?;
    F::from_arg_matches(&matches).map_err(|error| error.to_string())
}

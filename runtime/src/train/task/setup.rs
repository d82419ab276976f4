//! The run that a task is opened for.

use std::path::Path;

use crate::data::Tokenizer;
use crate::train::config::{Config, ModelSource};
use crate::train::plan::tokenizer_of_model;

/// The run that a task is opened for: its model, its flags and its settings.
pub struct TaskSetup<'a, C, F> {
    pub(super) config: &'a Config,
    pub(super) family: &'a C,
    pub(super) flags: &'a F,
}

impl<'a, C, F> TaskSetup<'a, C, F> {
    /// Returns the configuration of the model.
    pub fn family(&self) -> &'a C {
        self.family
    }

    /// Returns the flags of the task.
    pub fn flags(&self) -> &'a F {
        self.flags
    }

    /// Returns `--seq`: the positions of a row.
    pub fn seq(&self) -> usize {
        self.config.seq
    }

    /// Returns the folder of `--init-from`, whose files may state how examples become rows.
    pub fn model_folder(&self) -> Option<&'a Path> {
        match &self.config.model {
            ModelSource::InitFrom(folder) => Some(folder),
            _ => None,
        }
    }

    /// Opens the tokenizer of `--tokenizer`, or else that of the folder of `--init-from`.
    ///
    /// # Errors
    /// A run without one, and a file that cannot be read.
    pub fn tokenizer(&self) -> Result<Tokenizer, String> {
        let path = self.config.tokenizer.clone().or_else(|| tokenizer_of_model(self.config));
        let Some(path) = path else {
            return Err(
                "--tokenizer: the examples are texts; name the tokenizer of the model, tokenizer.json".to_owned()
            );
        };
        Tokenizer::open(&path).map_err(|error| error.to_string())
    }
}

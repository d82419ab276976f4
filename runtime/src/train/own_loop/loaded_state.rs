//! The state of a training loop besides its tensors.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::train::{Error, Result};

/// The state of a loop besides its tensors, which [`LoopCheckpoints`](super::LoopCheckpoints) has loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedState {
    step: u64,
    folder: PathBuf,
    values: Option<Value>,
}

impl LoadedState {
    pub(super) fn of(checkpoint: &Checkpoint) -> LoadedState {
        let state = &checkpoint.manifest().state;
        let values = state.own_loop.as_ref().map(|own| own.values.clone());
        LoadedState { step: state.step, folder: checkpoint.folder().to_owned(), values }
    }

    /// Returns the completed steps, which is also the next step, counted from 0.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the folder of the checkpoint.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the values that were saved with the state. The program compares those that have to be the same.
    ///
    /// # Errors
    /// Values of another type, and a checkpoint of the trainer, which has none.
    pub fn values<T: DeserializeOwned>(&self) -> Result<T> {
        let folder = self.folder.display();
        let Some(values) = &self.values else {
            return Err(Error::Input(format!(
                "{folder} was saved by the trainer, and has no values of a training loop; begin with new ones"
            )));
        };
        // As text, so that keys of maps may be numbers.
        serde_json::from_str(&values.to_string()).map_err(|error| {
            let is_null = error.to_string().contains("null, expected f");
            let hint = if is_null {
                "; JSON has neither NaN nor infinity: make it an `Option`"
            } else {
                ""
            };
            Error::Input(format!(
                "the values in {folder} are none of `{}`: {error}{hint}; they are {values}",
                std::any::type_name::<T>()
            ))
        })
    }
}

//! Rows that a task makes of examples.

use std::fmt;
use std::sync::Arc;

use meshwright_core::random;

use super::{DataError, ExampleSource, RowStreams, RowWriter, StreamData};

/// Makes a row of an example and a key.
pub type MakeRow =
    dyn Fn(&super::Example, u64, &mut RowWriter<'_>) -> Result<(), String> + Send + Sync;

/// Rows that a task makes of the examples of a source.
#[derive(Clone)]
pub struct TaskRows {
    source: Arc<dyn ExampleSource>,
    streams: RowStreams,
    make: Arc<MakeRow>,
    /// Name of the task.
    task: String,
    /// Key of all rows.
    key: u64,
    is_trained: bool,
}

impl TaskRows {
    /// Creates the rows that `make` makes of each example of `source`, with a key that follows from `seed`, the epoch
    /// and the number of the example. `task` is the name of the task.
    pub fn new(
        source: Arc<dyn ExampleSource>,
        (task, streams): (&str, RowStreams),
        make: Arc<MakeRow>,
        seed: u64,
    ) -> TaskRows {
        let key = random::key(seed, "rows of a task");
        TaskRows { source, streams, make, task: task.to_owned(), key, is_trained: true }
    }

    /// Returns the rows as those of a validation.
    #[must_use]
    pub fn of_validation(self) -> TaskRows {
        // Runs with other seeds evaluate the same rows.
        let key = random::key(0, "rows of a validation");
        TaskRows { key, is_trained: false, ..self }
    }

    /// Returns the streams of a row.
    pub(super) fn streams(&self) -> &RowStreams {
        &self.streams
    }

    /// Returns the name of the source.
    pub(super) fn name(&self) -> &str {
        self.source.name()
    }

    /// Returns the name of the source and the task.
    pub(super) fn described(&self) -> String {
        format!("{} for the task {}", self.source.name(), self.task)
    }

    /// Returns the number of examples.
    pub(super) fn rows(&self) -> u64 {
        self.source.examples()
    }

    /// Returns a text that differs for other rows.
    pub(super) fn fingerprint(&self) -> String {
        format!("{}; {}: {}", self.source.fingerprint(), self.task, self.streams)
    }

    /// Writes the row of the example `number` in an epoch as row `index` of `data`.
    ///
    /// # Errors
    /// An example that cannot be read, or made a row of.
    pub(super) fn write_row(
        &self,
        epoch: u64,
        number: u64,
        data: &mut [StreamData],
        index: usize,
    ) -> Result<(), DataError> {
        let name = || self.source.name().to_owned();
        let example = self.source.read(number).map_err(|error| DataError::Example {
            name: name(),
            number,
            problem: error.to_string(),
        })?;
        let key = random::subkey(random::subkey(self.key, epoch), number);
        let write = |row: &mut RowWriter<'_>| {
            row.is_trained = self.is_trained;
            (self.make)(&example, key, row)
        };
        self.streams.write_row(data, index, write).map_err(|problem| DataError::Example {
            name: name(),
            number,
            problem,
        })
    }
}

impl fmt::Debug for TaskRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskRows").field(&self.task).field(&self.source.name()).finish()
    }
}

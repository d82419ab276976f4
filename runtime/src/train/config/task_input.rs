//! Input of a task that its program gives, beside the settings of the run.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::data::ExampleSource;

/// Input of a task that the program gives, beside the settings of the run.
#[derive(Clone, Default)]
pub struct TaskInput {
    /// The flags of the task, of its type; `None` if the program has read none.
    pub flags: Option<Arc<dyn Any + Send + Sync>>,
    /// The examples that the program makes instead of reading `--data`.
    pub examples: Option<Arc<dyn ExampleSource>>,
}

impl fmt::Debug for TaskInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let examples = self.examples.as_ref().map(|examples| examples.name().to_owned());
        f.debug_struct("TaskInput").field("examples", &examples).finish_non_exhaustive()
    }
}

/// Inputs are the same if they are of one program.
impl PartialEq for TaskInput {
    fn eq(&self, other: &TaskInput) -> bool {
        let same =
            |pair: (&Arc<dyn ExampleSource>, &Arc<dyn ExampleSource>)| Arc::ptr_eq(pair.0, pair.1);
        match (&self.examples, &other.examples) {
            (Some(own), Some(other)) => same((own, other)),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}

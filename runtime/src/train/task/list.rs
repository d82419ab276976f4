//! Lists of tasks, from which a program picks one by its name and the family of its model.

use super::Task;

/// A list of tasks that a program trains, made by [`tasks!`](crate::tasks!).
pub trait TaskList {
    /// Returns the name of each task with the families of its model. A task has an entry for each of its models.
    fn entries() -> Vec<(&'static str, &'static [&'static str])>;

    /// Calls `visitor` with the task of this name whose model is of `family`. Returns `None` if the list does not have
    /// it.
    fn with<V: WithTask>(name: &str, family: &str, visitor: V) -> Option<V::Out>;
}

/// A function of a task of any type.
pub trait WithTask {
    /// The result.
    type Out;

    /// Runs with a task.
    fn with<T: Task>(self) -> Self::Out;
}

/// Declares a list of tasks: each with a model. Entries with the same [`NAME`](crate::train::Task::NAME) have the same
/// flags.
///
/// ```
/// use meshwright::models::Llama;
/// use meshwright::train::{NextToken, TaskList};
///
/// meshwright::tasks! {
///     /// The tasks of this program.
///     struct Own: NextToken<Llama>;
/// }
/// assert_eq!(Own::entries()[0].0, "next-token");
/// ```
#[macro_export]
macro_rules! tasks {
    ($(#[$meta:meta])* $vis:vis struct $name:ident: $($task:ty),+ $(,)?;) => {
        $(#[$meta])*
        $vis struct $name;

        impl $crate::train::TaskList for $name {
            fn entries() -> ::std::vec::Vec<(&'static str, &'static [&'static str])> {
                ::std::vec![$($crate::__private::task_entry::<$task>()),+]
            }

            fn with<V: $crate::train::WithTask>(
                name: &str,
                family: &str,
                visitor: V,
            ) -> ::std::option::Option<V::Out> {
                $(
                    let (own, families) = $crate::__private::task_entry::<$task>();
                    if own == name && families.contains(&family) {
                        return ::std::option::Option::Some(visitor.with::<$task>());
                    }
                )+
                ::std::option::Option::None
            }
        }
    };
}

/// Returns the name of a task, and the families of its model.
pub fn task_entry<T: Task>() -> (&'static str, &'static [&'static str]) {
    (T::NAME, <super::ConfigOf<T> as crate::checkpoint::hf::HfConfig>::MODEL_TYPES)
}

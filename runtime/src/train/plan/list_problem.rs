//! Reasons why the files of a source of data cannot be listed.

use crate::data::DataError;
use crate::train::Error;

/// Reason why data cannot be listed.
#[derive(Debug)]
pub enum ListProblem {
    /// Names that are to be changed.
    Refused(String),
    /// Object storage that cannot be read.
    Unreadable(DataError),
}

impl From<String> for ListProblem {
    fn from(problem: String) -> ListProblem {
        ListProblem::Refused(problem)
    }
}

impl ListProblem {
    /// Adds the place of the names.
    pub fn at(self, place: &str) -> ListProblem {
        match self {
            ListProblem::Refused(problem) => ListProblem::Refused(format!("{place}: {problem}")),
            unreadable @ ListProblem::Unreadable(_) => unreadable,
        }
    }

    /// Returns the error of the flag that has the names.
    pub fn of_flag(flag: &'static str) -> impl Fn(ListProblem) -> Error {
        move |problem| match problem {
            ListProblem::Refused(problem) => Error::Input(format!("{flag}: {problem}")),
            ListProblem::Unreadable(error) if flag == "--data" => error.into(),
            ListProblem::Unreadable(error) => Error::of_validation(flag)(error),
        }
    }
}

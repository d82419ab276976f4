//! Failures of the programs: a message with an exit code.

use std::error::Error;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use meshwright::exit_code::{REFUSED, code_of_error};

/// The message of a failed program, and its exit code.
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// Creates the failure by an `error`, described by `message`.
    pub fn new(message: String, error: &(dyn Error + 'static)) -> Failure {
        Failure { message, code: code_of_error(error) }
    }
}

/// Converts a message about the arguments.
impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure { message, code: REFUSED }
    }
}

/// Describes wrong arguments in one line.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
            _ => None,
        };
        let unknown = |what: &str, name: String, near: Option<String>| match near {
            Some(near) => format!("unknown {what} `{name}`; did you mean `{near}`?"),
            None => format!("unknown {what} `{name}`; --help lists them all"),
        };
        let (argument, near) = (text(ContextKind::InvalidArg), text(ContextKind::SuggestedArg));
        let command = text(ContextKind::InvalidSubcommand);
        let message = match (error.kind(), argument, command) {
            (ErrorKind::UnknownArgument, Some(name), _) if name.starts_with('-') => {
                unknown("flag", name, near)
            }
            (ErrorKind::MissingRequiredArgument, Some(names), _) => {
                format!("needs {names}; --help explains it")
            }
            (ErrorKind::InvalidSubcommand, _, Some(name)) => {
                unknown("command", name, text(ContextKind::SuggestedSubcommand))
            }
            _ => {
                let text = error.to_string();
                let first = text.split("\n\n").next().unwrap_or_default();
                let lines = first.trim_start_matches("error: ").lines().map(str::trim);
                lines.collect::<Vec<_>>().join(" ")
            }
        };
        message.into()
    }
}

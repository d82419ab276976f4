//! Problems with the settings, and their messages.

use std::fmt;
use std::path::PathBuf;

use crate::os::exit_code::{REFUSED, code_of_io};
use crate::os::print_text;
use crate::train::console::print_line;

/// The source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// A flag of the command line.
    CommandLine,
    /// A setting that the checkpoint of `--resume` keeps.
    Checkpoint {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// A key of a `--config` file.
    File {
        /// The file.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
    },
}

/// One problem with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Source of the setting; `None` if it is missing.
    pub source: Option<SettingSource>,
    /// Cause and fix.
    pub message: String,
}

/// Reason why no [`Config`](super::Config) was parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Text to print for `--help` or `--version`.
    #[error("{0}")]
    Asked(String),
    /// All problems with the settings.
    #[error("{}", ProblemList(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// Prints the message and ends the process: requested text on stdout with exit code 0, problems on stderr with exit
    /// code 2. Requested text that cannot be written ends it with 3.
    pub fn exit(self) -> ! {
        let (message, code) = match self {
            ConfigError::Asked(text) => match print_text(&format!("{}\n", text.trim_end())) {
                Ok(()) => std::process::exit(0),
                Err(error) => (error.to_string(), code_of_io(&error)),
            },
            problems @ ConfigError::Invalid(_) => (problems.to_string(), REFUSED),
        };
        print_line(&format!("error: {message}"));
        std::process::exit(i32::from(code))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(SettingSource::File { path, line }) => write!(f, "{}:{line}: ", path.display())?,
            Some(SettingSource::Checkpoint { folder }) => {
                write!(f, "as saved in {}: ", folder.display())?;
            }
            Some(SettingSource::CommandLine) | None => {}
        }
        f.write_str(&self.message)
    }
}

/// Formats one problem on its line, and several as a list.
struct ProblemList<'a>(&'a [Problem]);

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [only] => only.fmt(f),
            problems => {
                write!(f, "the settings have {} problems", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

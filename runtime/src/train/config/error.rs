//! What can be wrong with the settings, and how it is told.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

/// Where a setting was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A flag of the command line.
    CommandLine,
    /// A key of a `--config` file.
    File {
        /// The file.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
    },
}

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was given; `None` for something missing.
    pub source: Option<Source>,
    /// What is wrong, and the fix.
    pub message: String,
}

/// Why there is no [`Config`](super::Config).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The user asked for `--help` or `--version`; the text to print.
    #[error("{0}")]
    Asked(String),
    /// The settings do not make sense; everything that was found.
    #[error("{}", Listed(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// Prints the message and ends the process: what was asked for on stdout with code 0, problems on stderr with
    /// code 2.
    pub fn exit(self) -> ! {
        match self {
            ConfigError::Asked(text) => {
                // Whoever reads may have stopped reading, as `--help | head` does.
                let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
                std::process::exit(0)
            }
            ConfigError::Invalid(_) => {
                crate::train::console::say(&format!("error: {self}"));
                std::process::exit(2)
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Source::File { path, line }) = &self.source {
            write!(f, "{}:{line}: ", path.display())?;
        }
        f.write_str(&self.message)
    }
}

/// One problem on its line; several as a list.
struct Listed<'a>(&'a [Problem]);

impl fmt::Display for Listed<'_> {
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

//! The problems that were found with settings.

use super::flags::Flag;
use super::given_value::GivenMap;
use super::{ConfigError, Problem, SettingSource};

/// The problems found so far, at most one of each flag.
#[derive(Debug, Clone)]
pub struct Problems {
    given: GivenMap,
    /// The name of the flag, and its problem.
    found: Vec<(String, Problem)>,
}

impl Problems {
    /// Creates an empty list for these settings.
    pub fn new(given: &GivenMap) -> Problems {
        Problems { given: given.clone(), found: Vec::new() }
    }

    /// Adds a problem of the first of some flags, unless one of them has a problem already: one mistake gives one
    /// message.
    pub fn add(&mut self, flags: &[&str], message: impl Into<String>) {
        if self.found.iter().any(|(found, _)| flags.contains(&found.as_str())) {
            return;
        }
        let (name, message) = (flags[0], message.into());
        let source = self.given.get(name).map(|given| given.source.clone());
        let mut message = match source {
            Some(SettingSource::File { .. }) => format!("{name}: {message}"),
            _ => format!("--{name}: {message}"),
        };
        // The message names flags that are not on the command line.
        if !matches!(source, Some(SettingSource::Checkpoint { .. })) {
            message.extend(flags[1..].iter().find_map(|other| self.describe_kept(other)));
        }
        self.found.push((name.to_owned(), Problem { source, message }));
    }

    /// Reports that a flag is taken from a checkpoint, if it is.
    fn describe_kept(&self, name: &str) -> Option<String> {
        match &self.given.get(name)?.source {
            SettingSource::Checkpoint { folder } => {
                Some(format!(" (--{name} is as saved in {})", folder.display()))
            }
            _ => None,
        }
    }

    /// Returns all problems, in the order of the `flags`.
    ///
    /// # Errors
    /// The problems, if there are some.
    pub fn finish(mut self, flags: &[Flag]) -> Result<(), ConfigError> {
        let place = |name: &str| flags.iter().position(|flag| flag.name == name);
        self.found.sort_by_key(|(name, _)| place(name));
        let problems: Vec<_> = self.found.into_iter().map(|(_, problem)| problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(problems)) }
    }
}

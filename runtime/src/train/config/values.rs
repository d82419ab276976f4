//! Single values: parses text to numbers, words and paths, and collects problems.

use std::collections::HashSet;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use crate::backend::Bytes;

use super::flags::{Flag, FlagKind};
use super::given::GivenMap;
use super::{Problem, SettingSource, TimeLimit};

/// Largest upper bound that messages name together with the lower bound.
const MAX_NAMED_BOUND: u64 = 9;

/// The given values, and the problems found so far.
///
/// An invalid value is noted as a problem and replaced by the default, so that one pass finds all problems.
pub struct Values {
    given: GivenMap,
    problems: Vec<Problem>,
    /// Names of the flags with problems.
    refused: HashSet<String>,
}

impl Values {
    pub fn new(given: GivenMap) -> Values {
        Values { given, problems: Vec::new(), refused: HashSet::new() }
    }

    /// Returns all problems that were found.
    pub fn finish_reading(self) -> Result<(), Vec<Problem>> {
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns true if the value is not that of a checkpoint, which another run was given.
    pub fn is_given_now(&self, name: &str) -> bool {
        let given = self.given.get(name);
        given.is_some_and(|given| !matches!(given.source, SettingSource::Checkpoint { .. }))
    }

    /// Returns true if no problem was found with this flag so far. Rules about several flags check it first, so that
    /// one mistake gives one message.
    pub fn fits(&self, name: &str) -> bool {
        !self.refused.contains(name)
    }

    pub fn problem(&mut self, name: &str, message: String) {
        self.refused.insert(name.to_owned());
        let source = self.given.get(name).map(|given| given.source.clone());
        let name = match source {
            Some(SettingSource::File { .. }) => name.to_owned(),
            _ => format!("--{name}"),
        };
        let problem = Problem { source, message: format!("{name}: {message}") };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub fn path(&mut self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(&self.given.get(name)?.text);
        if path.as_os_str().is_empty() {
            self.problem(name, "needs a path, but the value is empty".into());
        }
        Some(path)
    }

    /// Returns the value as text; `None` if it was not given and has no default.
    pub fn text(&mut self, name: &str) -> Option<String> {
        let default = Flag::find(name).map_or("", |flag| flag.default);
        let Some(given) = self.given.get(name) else {
            return Some(default.to_owned()).filter(|text| !text.is_empty());
        };
        match given.text.to_str() {
            Some(text) => Some(text.trim().to_owned()),
            None => {
                let message = format!("{} is not valid UTF-8", given.text.to_string_lossy());
                self.problem(name, message);
                None
            }
        }
    }

    /// Parses the value and checks it with `fits`. If it is invalid, notes the problem "must be `wanted`" and returns
    /// the default.
    fn parsed<T: FromStr>(
        &mut self,
        name: &str,
        wanted: &str,
        fits: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let text = self.text(name)?;
        let value = text.parse().ok().filter(&fits);
        if value.is_none() {
            self.problem(name, format!("must be {wanted}, not `{text}`"));
            return Flag::find(name)?.default.parse().ok();
        }
        value
    }

    pub fn count(&mut self, name: &str) -> Option<u64> {
        let (min, max) = match Flag::find(name).map(|flag| flag.kind) {
            Some(FlagKind::Count { min, max }) => (min, max),
            _ => (0, u64::MAX),
        };
        let is_too_large = match self.text(name)?.parse::<u64>() {
            Ok(n) => n > max,
            Err(error) => *error.kind() == IntErrorKind::PosOverflow,
        };
        let wanted = match min {
            _ if max <= MAX_NAMED_BOUND => format!("a whole number from {min} to {max}"),
            _ if is_too_large => format!("at most {max}"),
            0 => "a whole number".to_owned(),
            min => format!("a whole number of at least {min}"),
        };
        self.parsed(name, &wanted, |n| (min..=max).contains(n))
    }

    /// Returns a count that has a default.
    pub fn size(&mut self, name: &str) -> usize {
        self.count(name).unwrap_or(1) as usize
    }

    pub fn number(&mut self, name: &str) -> f64 {
        let fits = |x: &f64| x.is_finite() && *x >= 0.0;
        self.parsed(name, "a number of at least 0", fits).unwrap_or(0.0)
    }

    /// Returns a number in [0, 1); `None` if it was not given.
    pub fn fraction(&mut self, name: &str) -> Option<f64> {
        self.parsed(name, "a number of at least 0 and below 1", |x| (0.0..1.0).contains(x))
    }

    /// Returns a number of bytes above 0; `None` if it was not given.
    pub fn bytes(&mut self, name: &str) -> Option<usize> {
        let wanted = "a number of bytes such as 2GB or 512MiB";
        self.parsed(name, wanted, |bytes: &Bytes| bytes.0 >= 1.0).map(|bytes| bytes.0 as usize)
    }

    /// Returns a length of time; `None` if it was not given.
    pub fn time(&mut self, name: &str) -> Option<TimeLimit> {
        self.parsed(name, "a time such as 3h50m, 90s or 2d", |_| true)
    }

    pub fn pair(&mut self, name: &str) -> (f64, f64) {
        let wanted = "two numbers in [0, 1) separated by a comma";
        let unit = |x: &f64| (0.0..1.0).contains(x);
        self.parsed(name, wanted, |pair: &Pair| unit(&pair.0) && unit(&pair.1))
            .map_or((0.0, 0.0), |pair| (pair.0, pair.1))
    }

    pub fn switch(&mut self, name: &str) -> bool {
        self.given.get(name).is_some_and(|given| given.text == "true")
    }

    pub fn choice(&mut self, name: &str) -> String {
        let words = match Flag::find(name).map(|flag| flag.kind) {
            Some(FlagKind::Choice(words)) => words,
            _ => &[],
        };
        self.choice_of(name, words)
    }

    /// The value as one of `words`, else a problem and the default.
    pub fn choice_of(&mut self, name: &str, words: &[&str]) -> String {
        let default = Flag::find(name).map_or("", |flag| flag.default).to_owned();
        let Some(text) = self.text(name) else { return default };
        if words.contains(&text.as_str()) {
            return text;
        }
        let hint = match Flag::nearest(&text, words.iter().copied()) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        self.problem(name, format!("must be one of {}, not `{text}`{hint}", words.join(", ")));
        default
    }
}

/// Two numbers, parsed from `0.9,0.95`.
struct Pair(f64, f64);

impl FromStr for Pair {
    type Err = ();

    fn from_str(text: &str) -> Result<Pair, ()> {
        let (a, b) = text.split_once(',').ok_or(())?;
        let number = |text: &str| text.trim().parse().map_err(drop);
        Ok(Pair(number(a)?, number(b)?))
    }
}

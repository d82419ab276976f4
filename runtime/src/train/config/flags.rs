//! The description of a flag, for the command line, the keys of `--config` files and `--help`.

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlagKind {
    /// A whole number.
    Count,
    /// A whole number, or `auto`.
    CountOrAuto,
    /// A number.
    Number,
    /// A number of bytes, with or without a unit.
    Bytes,
    /// Two numbers separated by a comma.
    Pair,
    /// A file or folder.
    Path,
    /// Text.
    Text,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Present or absent.
    Switch,
}

/// Treatment of a resumed run whose setting differs from the saved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A refusal: the samples would be others.
    Refuse,
    /// A warning: the change is easily forgotten.
    Warn,
    /// No report: it has no effect on training, or what it reads is compared.
    Free,
}

/// The place of a setting that checkpoints keep.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Pointer into a serialized [`Config`](super::Config).
    pub path: &'static str,
    /// Treatment of another value.
    pub change: Change,
}

/// One flag of the command line, which is also a key of `--config` files.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Long name without dashes.
    pub name: &'static str,
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// Type of the value.
    pub kind: FlagKind,
    /// Value of an absent flag; empty if absence has a meaning of its own.
    pub default: &'static str,
    /// Value of a flag that is given without one; empty if it needs one.
    pub alone: &'static str,
    /// Heading in `--help`.
    pub group: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// The place in checkpoints; `None` for a setting of one machine, and of what a run reads and writes besides.
    pub kept: Option<Kept>,
}

impl Flag {
    /// Returns the candidate closest to a misspelled `word`, if one is close.
    pub fn nearest<'a>(
        word: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        candidates
            .into_iter()
            .map(|name| (strsim::osa_distance(word, name), name))
            .filter(|(distance, name)| *distance <= 1 + name.len().min(word.len()) / 4)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
    }
}

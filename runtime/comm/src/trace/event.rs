//! Events of a trace, with names and arguments. Texts are formatted when the file is written, not while a rank runs.

use std::fmt::{Display, Formatter};
use std::panic::Location;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The name of a span: an operation, and optionally its subject.
#[derive(Debug, Clone)]
pub enum Name {
    /// An operation: `optimizer`.
    Fixed(&'static str),
    /// An operation and its subject, printed with a space between: `forward blocks.3`.
    Of(&'static str, Arc<str>),
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Name {
        Name::Fixed(name)
    }
}

impl From<(&'static str, &Arc<str>)> for Name {
    fn from((label, subject): (&'static str, &Arc<str>)) -> Name {
        Name::Of(label, Arc::clone(subject))
    }
}

impl From<(&'static str, &str)> for Name {
    fn from((label, subject): (&'static str, &str)) -> Name {
        Name::Of(label, subject.into())
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Fixed(name) => f.write_str(name),
            Name::Of(label, subject) => write!(f, "{label} {subject}"),
        }
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The value of an argument of a span.
#[derive(Debug, Clone)]
pub enum Arg {
    /// A count, such as bytes.
    Count(u64),
    /// A text, such as the path of a field.
    Text(Arc<str>),
    /// A source location.
    Line(&'static Location<'static>),
}

impl Serialize for Arg {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Arg::Count(count) => serializer.serialize_u64(*count),
            Arg::Text(text) => serializer.serialize_str(text),
            Arg::Line(location) => serializer.collect_str(location),
        }
    }
}

/// A span on a lane, with times in nanoseconds since the tracer was created.
#[derive(Debug)]
pub(super) struct Event {
    pub name: Name,
    pub category: &'static str,
    pub start: u64,
    pub end: u64,
    pub args: Vec<(&'static str, Arg)>,
}

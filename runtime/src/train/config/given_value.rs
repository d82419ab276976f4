//! A value of a setting as given, and messages about unknown settings.

use std::ffi::OsString;

use super::SettingSource;
use super::flags::Flag;
use super::settings::FLAGS;

/// A value as text, with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenValue {
    /// The value; of a switch, `true` or `false`.
    pub text: OsString,
    /// The source of the value.
    pub source: SettingSource,
}

/// Describes an unknown `flag` or `key`, with a suggestion; `prefix` is put before names.
pub fn describe_unknown(what: &str, name: &str, prefix: &str) -> String {
    let dashed = name.replace('_', "-");
    let names = FLAGS.iter().map(|flag| flag.name);
    match Flag::nearest(&dashed, names) {
        Some(near) => format!("unknown {what} `{prefix}{name}`; did you mean `{prefix}{near}`?"),
        None => format!("unknown {what} `{prefix}{name}`; --help lists them all"),
    }
}

//! The settings as given, as text.

use std::collections::HashMap;
use std::ffi::OsString;

use super::SettingSource;

/// The given values, by flag name.
pub type GivenMap = HashMap<&'static str, GivenValue>;

/// A value as text, with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenValue {
    /// The value; of a switch, `true` or `false`.
    pub text: OsString,
    /// The source of the value.
    pub source: SettingSource,
}

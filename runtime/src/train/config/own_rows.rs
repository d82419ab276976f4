//! Rows that the program makes instead of reading `--data`.

use std::fmt;
use std::sync::Arc;

use crate::data::RowSource;

use super::Config;
use super::settings::RunSettings;

/// Rows that the program makes.
#[derive(Clone)]
pub struct OwnRows(pub Arc<dyn RowSource>);

impl fmt::Debug for OwnRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnRows").field(&self.0.name()).finish()
    }
}

/// Rows are the same if they are of one source.
impl PartialEq for OwnRows {
    fn eq(&self, other: &OwnRows) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Config {
    /// Returns the settings of a run on the rows of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_rows(self, source: impl RowSource + 'static) -> Config {
        Config { rows: Some(OwnRows(Arc::new(source))), ..self }
    }
}

impl RunSettings {
    /// Returns the settings of a run on the rows of `source`, which takes no `--data`.
    #[must_use]
    pub fn with_rows(self, source: impl RowSource + 'static) -> RunSettings {
        RunSettings { rows: Some(OwnRows(Arc::new(source))), ..self }
    }
}

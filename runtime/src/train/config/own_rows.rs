//! Rows that the program makes instead of reading `--data`.

use std::fmt;
use std::sync::Arc;

use crate::data::RowSource;

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

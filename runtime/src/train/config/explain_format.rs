//! Formats of `--explain`.

use serde::Serialize;

/// `--explain`: the format of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExplainFormat {
    /// Tables.
    Text,
    /// One JSON document.
    Json,
}

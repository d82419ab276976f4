//! The sources of a run, as checkpoints hold them.

use serde::{Deserialize, Serialize};

use super::Order;

/// A source of a mixture, as checkpoints hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The name.
    pub name: String,
    /// Rows of the source in a block of 4,096 rows.
    pub rows: u64,
    /// The order of its samples.
    pub order: Order,
    /// The files.
    pub files: Vec<FileRecord>,
}

/// A file of a source, as checkpoints hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The file, for the record; it may move.
    pub file: String,
    /// Length in tokens.
    pub tokens: usize,
    /// XXH3 of blocks of ids, in hexadecimal.
    pub ids: String,
    /// XXH3 of the documents of packed rows, as of a [`DataPosition`](super::DataPosition).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<String>,
}

/// Describes the first difference between saved sources and those of now.
pub(super) fn first_difference(saved: &[SourceRecord], now: &[SourceRecord]) -> Option<String> {
    let names =
        |of: &[SourceRecord]| of.iter().map(|source| &*source.name).collect::<Vec<_>>().join(", ");
    // A single source has the name of its files, which may move.
    if saved.len() != now.len() || (saved.len() > 1 && names(saved) != names(now)) {
        return Some(format!("the sources are {}, but {} were saved", names(now), names(saved)));
    }
    saved.iter().zip(now).find_map(|(saved, now)| saved.difference(now))
}

pub(super) fn counted_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

impl SourceRecord {
    /// Describes the first difference to the source of now.
    fn difference(&self, now: &SourceRecord) -> Option<String> {
        let SourceRecord { name, rows, order, files } = now;
        if *rows != self.rows {
            return Some(format!(
                "the weight of {name} is {rows} rows in 4,096, but {} were saved",
                self.rows
            ));
        }
        if *order != self.order {
            return Some(format!("the order of {name} is {order}, but {} was saved", self.order));
        }
        if files.len() != self.files.len() {
            let [now, saved] = [files, &self.files].map(|files| counted_files(files.len()));
            return Some(format!("{name} has {now}, but {saved} were saved"));
        }
        self.files.iter().zip(files).find_map(|(saved, now)| {
            let is_same =
                (saved.tokens, &saved.ids, &saved.packing) == (now.tokens, &now.ids, &now.packing);
            (!is_same).then(|| {
                format!(
                    "{} with {} tokens differs from the file of the checkpoint, {} with {} tokens",
                    now.file, now.tokens, saved.file, saved.tokens
                )
            })
        })
    }
}

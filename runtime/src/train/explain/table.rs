//! The rows of collectives as text.

use std::collections::BTreeMap;

use crate::mesh::MeshShape;

use super::columns::{aligned, bytes_text};
use super::rows::{CollectiveRow, PASSES};

const HEAD: [&str; 10] = [
    "field",
    "operation",
    "axes",
    "layers x calls",
    "forward",
    "recomputed",
    "backward",
    "update",
    "overlaps with",
    "line",
];

/// Most fields that a cell lists.
const MAX_LISTED: usize = 3;

/// The cells of a line.
type Cells = [String; HEAD.len()];

/// Returns a table of the rows, with the sums of each set of axes. Bytes are summed over all layers of a row.
pub fn table_of(rows: &[CollectiveRow], mesh: &MeshShape) -> String {
    if rows.is_empty() {
        return "  none: no rank communicates\n".to_owned();
    }
    let head = HEAD.map(str::to_owned);
    let rows_and_sums = rows.iter().map(|row| cells_of(row, mesh)).chain(sums_of(rows, mesh));
    aligned(&[head].into_iter().chain(rows_and_sums).collect::<Vec<_>>(), 3..8)
}

/// Returns the lines of the sums.
fn sums_of(rows: &[CollectiveRow], mesh: &MeshShape) -> Vec<Cells> {
    let mut sums: BTreeMap<String, (usize, [u64; PASSES.len()])> = BTreeMap::new();
    for row in rows {
        let (calls, bytes) = sums.entry(mesh.axes_in_use(row.axes).to_string()).or_default();
        *calls += row.all_calls();
        for (sum, bytes) in bytes.iter_mut().zip(row.all_bytes()) {
            *sum += bytes;
        }
    }
    let line = |(axes, (calls, bytes)): (String, (usize, [u64; PASSES.len()]))| {
        let [forward, recomputed, backward, update] = bytes.map(bytes_text);
        let (all, calls) = ("all".to_owned(), calls.to_string());
        let [op, overlaps, line] = [const { String::new() }; 3];
        [all, op, axes, calls, forward, recomputed, backward, update, overlaps, line]
    };
    sums.into_iter().map(line).collect()
}

/// Returns the line of a row.
fn cells_of(row: &CollectiveRow, mesh: &MeshShape) -> Cells {
    let [forward, recomputed, backward, update] = row.all_bytes().map(bytes_text);
    let overlapped = match row.overlapped() {
        None => String::new(),
        Some(fields) if fields.is_empty() => "(asynchronous)".to_owned(),
        Some(fields) if fields.len() > MAX_LISTED => {
            let more = fields.len() - MAX_LISTED;
            format!("{} and {more} more", fields[..MAX_LISTED].join(", "))
        }
        Some(fields) => fields.join(", "),
    };
    [
        row.layers.to_string(),
        row.op.to_owned(),
        mesh.axes_in_use(row.axes).to_string(),
        format!("{} x {}", row.layers.count(), row.calls),
        forward,
        recomputed,
        backward,
        update,
        overlapped,
        row.line().unwrap_or_default(),
    ]
}

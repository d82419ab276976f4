//! The rows as text.

use std::collections::BTreeMap;

use crate::backend::Bytes;
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;

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

/// Columns whose text is aligned to the right.
const NUMBERS: std::ops::Range<usize> = 3..8;

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
    aligned(&[head].into_iter().chain(rows_and_sums).collect::<Vec<_>>())
}

/// Returns the lines of the sums.
fn sums_of(rows: &[CollectiveRow], mesh: &MeshShape) -> Vec<Cells> {
    let mut sums: BTreeMap<String, (usize, [u64; PASSES.len()])> = BTreeMap::new();
    for row in rows {
        let (calls, bytes) = sums.entry(axes_text(row.axes, mesh)).or_default();
        *calls += row.count() * row.calls;
        for (sum, bytes) in bytes.iter_mut().zip(row.bytes) {
            *sum += bytes * row.count() as u64;
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

/// Returns lines whose columns have the width of their longest cell.
fn aligned(lines: &[Cells]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEAD.len()).map(|column| width(column).unwrap_or(0)).collect();
    let text_of = |line: &Cells| {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if NUMBERS.contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(text_of).collect()
}

/// Returns the line of a row.
fn cells_of(row: &CollectiveRow, mesh: &MeshShape) -> Cells {
    let count = row.count() as u64;
    let [forward, recomputed, backward, update] = row.bytes.map(|bytes| bytes_text(bytes * count));
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
        row.field(),
        row.op.to_owned(),
        axes_text(row.axes, mesh),
        format!("{} x {}", row.count(), row.calls),
        forward,
        recomputed,
        backward,
        update,
        overlapped,
        line_text(row),
    ]
}

/// Returns the axes along which the mesh has several ranks.
fn axes_text(axes: AxisSet, mesh: &MeshShape) -> String {
    let names = axes.iter().filter(|axis| mesh.degree(*axis) > 1).map(AxisId::name);
    names.collect::<Vec<_>>().join(" x ")
}

/// Returns the line of the call, if it is one of the program and not of this library.
fn line_text(row: &CollectiveRow) -> String {
    let own = file!().trim_end_matches("train/explain/table.rs");
    let line = row.line.filter(|line| !line.file().starts_with(own));
    line.map(|line| format!("{}:{}", line.file(), line.line())).unwrap_or_default()
}

/// Returns a number of bytes, or a dash for none.
fn bytes_text(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { Bytes(bytes as f64).to_string() }
}

//! The rows of the table: calls of the same kind at one field, and layers that are alike.

use std::collections::BTreeSet;
use std::panic::Location;

use crate::layout::AxisSet;
use meshwright_core::__internal::Pass;

use super::calls::RecordedCall;
use super::layer_field::LayerField;

/// Passes in the order of the columns.
pub const PASSES: [Pass; 4] = [Pass::Forward, Pass::Recomputation, Pass::Backward, Pass::Update];

/// Calls of one kind in a step, at one field or the same field of several layers.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveRow {
    /// The field, of one layer.
    field: LayerField,
    /// Layers that are alike, in order; empty if the field is not of a layer.
    layers: BTreeSet<usize>,
    pub line: Option<&'static Location<'static>>,
    pub op: &'static str,
    pub axes: AxisSet,
    /// Calls of each layer.
    pub calls: usize,
    /// Bytes of each layer that are sent in each of [`PASSES`].
    pub bytes: [u64; PASSES.len()],
    /// Parts of the model that asynchronous calls overlap with; `None` for blocking calls.
    overlapped: Option<Vec<LayerField>>,
}

impl CollectiveRow {
    fn new(call: &RecordedCall) -> CollectiveRow {
        CollectiveRow {
            layers: call.field.layer.into_iter().collect(),
            field: call.field.clone(),
            line: call.line,
            op: call.op,
            axes: call.axes,
            calls: 0,
            bytes: [0; PASSES.len()],
            overlapped: call.overlapped.clone(),
        }
    }

    /// Returns true if both are of the same kind, at fields that differ by the layer at most.
    fn is_like(&self, other: &CollectiveRow) -> bool {
        self.field.is_like(&other.field)
            && (self.line, self.op, self.axes) == (other.line, other.op, other.axes)
            && self.overlapped.is_some() == other.overlapped.is_some()
    }

    fn count_call(&mut self, call: &RecordedCall) {
        self.calls += 1;
        if let Some(pass) = PASSES.iter().position(|pass| *pass == call.pass) {
            self.bytes[pass] += call.bytes;
        }
        self.add_overlapped(call.overlapped.as_deref());
    }

    fn add_overlapped(&mut self, parts: Option<&[LayerField]>) {
        let Some(overlapped) = &mut self.overlapped else { return };
        for part in parts.unwrap_or_default() {
            if !overlapped.contains(part) {
                overlapped.push(part.clone());
            }
        }
    }

    /// Number of layers, or 1.
    pub fn count(&self) -> usize {
        self.layers.len().max(1)
    }

    /// Returns the field with its layers: `blocks.0-7.mlp.down`.
    pub fn field(&self) -> String {
        let LayerField { before, after, .. } = &self.field;
        format!("{before}{}{after}", ranges(&self.layers))
    }

    /// Returns the parts of the model that calls overlap with; `None` for blocking calls.
    pub fn overlapped(&self) -> Option<Vec<String>> {
        let mut groups: Vec<(&LayerField, BTreeSet<usize>)> = Vec::new();
        for field in self.overlapped.as_ref()? {
            let group = match groups.iter().position(|(known, _)| known.is_like(field)) {
                Some(index) => &mut groups[index],
                None => groups.push_mut((field, BTreeSet::new())),
            };
            group.1.extend(field.layer);
        }
        let text = |(field, layers): &(&LayerField, BTreeSet<usize>)| {
            format!("{}{}{}", field.before, ranges(layers), field.after)
        };
        Some(groups.iter().map(text).collect())
    }
}

/// Returns the rows of calls, in the order of their first calls.
pub fn rows_of(calls: Vec<RecordedCall>) -> Vec<CollectiveRow> {
    let mut of_fields: Vec<CollectiveRow> = Vec::new();
    for call in &calls {
        let new = CollectiveRow::new(call);
        let known = of_fields.iter().position(|row| row.is_like(&new) && row.field == new.field);
        let row = match known {
            Some(index) => &mut of_fields[index],
            None => of_fields.push_mut(new),
        };
        row.count_call(call);
    }
    let mut rows: Vec<CollectiveRow> = Vec::new();
    for row in of_fields {
        let like = |known: &&mut CollectiveRow| {
            known.is_like(&row) && (known.calls, known.bytes) == (row.calls, row.bytes)
        };
        match rows.iter_mut().find(like) {
            Some(known) => {
                known.layers.extend(&row.layers);
                known.add_overlapped(row.overlapped.as_deref());
            }
            None => rows.push(row),
        }
    }
    rows
}

/// Returns numbers as ranges: `0-2,5`; nothing for none.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(start, end): &(usize, usize)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(field: &str, pass: Pass, bytes: u64, overlapped: Option<&[&str]>) -> RecordedCall {
        let overlapped = overlapped.map(|all| all.iter().map(|x| LayerField::new(x)).collect());
        let (op, axes) = ("all_gather", AxisSet::ALL);
        RecordedCall {
            field: LayerField::new(field),
            line: None,
            op,
            axes,
            pass,
            bytes,
            overlapped,
        }
    }

    #[test]
    fn layers_that_are_alike_are_one_row() {
        let mut calls = Vec::new();
        for layer in [0, 1, 2, 3, 5] {
            let field = format!("blocks.{layer}.mlp.down");
            let bytes = if layer == 3 { 9 } else { 8 };
            calls.push(call(&field, Pass::Forward, bytes, None));
            calls.push(call(&field, Pass::Backward, 4, None));
        }
        let rows = rows_of(calls);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.field(), row.count(), row.calls, row.bytes)).collect();
        assert_eq!(
            shown,
            [
                ("blocks.0-2,5.mlp.down".to_owned(), 4, 2, [8, 0, 4, 0]),
                ("blocks.3.mlp.down".to_owned(), 1, 2, [9, 0, 4, 0]),
            ]
        );
    }

    #[test]
    fn overlapped_layers_are_ranges() {
        let calls = vec![
            call("blocks.1 (parameters)", Pass::Forward, 8, Some(&["blocks.0"])),
            call("blocks.2 (parameters)", Pass::Forward, 8, Some(&["blocks.1", "embed"])),
            call("head (parameters)", Pass::Forward, 8, Some(&[])),
        ];
        let rows = rows_of(calls);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].field(), "blocks.1-2 (parameters)");
        assert_eq!(rows[0].overlapped().unwrap(), ["blocks.0-1", "embed"]);
        assert_eq!(rows[1].overlapped().unwrap(), Vec::<String>::new());
    }
}

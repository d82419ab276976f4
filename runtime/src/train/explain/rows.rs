//! The rows of the table: calls of the same kind at one field, and layers that are alike.

use std::panic::Location;

use crate::layout::AxisSet;
use meshwright_core::__internal::Pass;

use super::calls::RecordedCall;
use super::layer_field::{LayerField, LayerGroup};

/// Passes in the order of the columns.
pub const PASSES: [Pass; 4] = [Pass::Forward, Pass::Recomputation, Pass::Backward, Pass::Update];

/// Calls of one kind in a step, at one field or the same field of several layers.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveRow {
    pub layers: LayerGroup,
    line: Option<&'static Location<'static>>,
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
            layers: LayerGroup::new(call.field.clone()),
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
        self.layers.is_like(&other.layers)
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

    /// Returns true for messages between two ranks.
    pub fn is_message(&self) -> bool {
        matches!(self.op, "send" | "recv")
    }

    /// Returns the bytes of all layers in each of [`PASSES`].
    pub fn all_bytes(&self) -> [u64; PASSES.len()] {
        self.bytes.map(|bytes| bytes * self.layers.count() as u64)
    }

    /// Returns the calls of all layers.
    pub fn all_calls(&self) -> usize {
        self.calls * self.layers.count()
    }

    /// Returns file and line of the call, if it is one of the program and not of this library.
    pub fn line(&self) -> Option<String> {
        let own = file!().trim_end_matches("train/explain/rows.rs");
        let line = self.line.filter(|line| !line.file().starts_with(own));
        line.map(|line| format!("{}:{}", line.file(), line.line()))
    }

    /// Returns the parts of the model that calls overlap with; `None` for blocking calls.
    pub fn overlapped(&self) -> Option<Vec<String>> {
        let mut groups: Vec<LayerGroup> = Vec::new();
        for field in self.overlapped.as_ref()? {
            let group = LayerGroup::new(field.clone());
            match groups.iter_mut().find(|known| known.is_like(&group)) {
                Some(known) => known.add(&group),
                None => groups.push(group),
            }
        }
        Some(groups.iter().map(LayerGroup::to_string).collect())
    }
}

/// Returns the rows of calls, in the order of their first calls.
pub fn rows_of(calls: Vec<RecordedCall>) -> Vec<CollectiveRow> {
    let mut of_fields: Vec<CollectiveRow> = Vec::new();
    for call in &calls {
        let new = CollectiveRow::new(call);
        let known = of_fields.iter().position(|row| row.is_like(&new) && row.layers == new.layers);
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
                known.layers.add(&row.layers);
                known.add_overlapped(row.overlapped.as_deref());
            }
            None => rows.push(row),
        }
    }
    rows
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
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.layers.to_string(), row.layers.count(), row.calls, row.bytes))
            .collect();
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
        assert_eq!(rows[0].layers.to_string(), "blocks.1-2 (parameters)");
        assert_eq!(rows[0].overlapped().unwrap(), ["blocks.0-1", "embed"]);
        assert_eq!(rows[1].overlapped().unwrap(), Vec::<String>::new());
    }
}

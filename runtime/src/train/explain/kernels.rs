//! The computation of a step: kernels of each forward function of each kind of layer.

use std::collections::HashMap;

use crate::backend::Category;
use meshwright_core::__internal::Pass;
use meshwright_sim::{Context, ContextId, EventKind, StepLog};

use super::columns::{aligned, bytes_text, flops_text};
use super::layer_field::{LayerField, LayerGroup};
use super::rows::PASSES;

const HEAD: [&str; 11] = [
    "layer",
    "function",
    "layers x kernels",
    "forward FLOPs",
    "recomputed",
    "backward",
    "forward bytes",
    "recomputed",
    "backward",
    "update",
    "kept",
];

/// The kernels of one forward function, and of its backward, in layers that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRow {
    pub layers: LayerGroup,
    /// The innermost forward function; empty outside of functions.
    pub function: &'static str,
    /// The work of each layer.
    pub work: LayerWork,
}

/// The work of a layer in a step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerWork {
    /// Number of kernels and copies.
    pub kernels: usize,
    /// FLOPs of matmuls and attention in each of [`PASSES`].
    pub flops: [u64; PASSES.len()],
    /// Bytes that kernels read and write in each of [`PASSES`].
    pub bytes: [u64; PASSES.len()],
    /// Bytes of activations that the forward pass of a micro-batch allocates, and that its backward pass frees.
    pub kept: u64,
}

/// Returns the rows of a step of a number of micro-batches, in the order of their first events.
pub fn kernel_rows(log: &StepLog, micro_batches: usize) -> Vec<KernelRow> {
    let mut of_layers = RowsOfLayers::new(log);
    let mut forward_buffers: HashMap<u32, usize> = HashMap::new();
    for event in log.events.iter() {
        let pass = log.context(&event).pass;
        match event.kind {
            EventKind::Kernel(kernel) => {
                let work = of_layers.work_of(event.context);
                work.kernels += 1;
                work.flops[pass as usize] += kernel.flops;
                work.bytes[pass as usize] += kernel.bytes();
            }
            EventKind::Alloc { buffer, category: Category::Activations, .. }
                if pass == Pass::Forward =>
            {
                forward_buffers.insert(buffer, of_layers.row_of(event.context));
            }
            EventKind::Free { buffer, bytes, .. } => {
                if let Some(row) = forward_buffers.remove(&buffer)
                    && pass != Pass::Forward
                {
                    of_layers.rows[row].work.kept += bytes;
                }
            }
            _ => {}
        }
    }
    let mut rows: Vec<KernelRow> = Vec::new();
    for mut row in of_layers.rows {
        row.work.kept /= micro_batches as u64;
        if row.work == LayerWork::default() {
            continue;
        }
        let like = |known: &&mut KernelRow| {
            known.layers.is_like(&row.layers)
                && (known.function, known.work) == (row.function, row.work)
        };
        match rows.iter_mut().find(like) {
            Some(known) => known.layers.add(&row.layers),
            None => rows.push(row),
        }
    }
    rows
}

/// Rows of single layers.
struct RowsOfLayers<'a> {
    log: &'a StepLog,
    rows: Vec<KernelRow>,
    /// Index of the row of each context.
    of_contexts: Vec<Option<usize>>,
}

impl<'a> RowsOfLayers<'a> {
    fn new(log: &'a StepLog) -> RowsOfLayers<'a> {
        RowsOfLayers { log, rows: Vec::new(), of_contexts: vec![None; log.contexts.len()] }
    }

    fn work_of(&mut self, context: ContextId) -> &mut LayerWork {
        let row = self.row_of(context);
        &mut self.rows[row].work
    }

    /// Returns the index of the row of a context.
    fn row_of(&mut self, context: ContextId) -> usize {
        let index = context.0 as usize;
        if let Some(row) = self.of_contexts[index] {
            return row;
        }
        let Context { layer, function, .. } = &self.log.contexts[index];
        let layers = LayerGroup::new(LayerField::new(layer));
        let is_known = |row: &KernelRow| (&row.layers, row.function) == (&layers, *function);
        let row = self.rows.iter().position(is_known).unwrap_or_else(|| {
            let work = LayerWork::default();
            self.rows.push(KernelRow { layers: layers.clone(), function, work });
            self.rows.len() - 1
        });
        self.of_contexts[index] = Some(row);
        row
    }
}

impl KernelRow {
    /// Returns the work of all layers.
    pub fn all_work(&self) -> LayerWork {
        let (count, LayerWork { kernels, flops, bytes, kept }) = (self.layers.count(), self.work);
        let all = |of_layer: u64| of_layer * count as u64;
        LayerWork {
            kernels: kernels * count,
            flops: flops.map(all),
            bytes: bytes.map(all),
            kept: all(kept),
        }
    }

    /// Returns the name of the layers; `(other)` outside of layers and functions.
    pub fn layers_text(&self) -> String {
        layers_text(&self.layers, self.function)
    }
}

impl LayerWork {
    fn add(&mut self, other: &LayerWork) {
        self.kernels += other.kernels;
        self.kept += other.kept;
        for pass in 0..PASSES.len() {
            self.flops[pass] += other.flops[pass];
            self.bytes[pass] += other.bytes[pass];
        }
    }
}

/// Returns the name of layers; `(other)` outside of layers and functions.
pub fn layers_text(layers: &LayerGroup, function: &str) -> String {
    let text = layers.to_string();
    if text.is_empty() && function.is_empty() { "(other)".to_owned() } else { text }
}

/// Returns a table of the rows, and their sum. Numbers are sums over all layers of a row.
pub fn kernel_table(rows: &[KernelRow]) -> String {
    let mut total = LayerWork::default();
    rows.iter().for_each(|row| total.add(&row.all_work()));
    let head = HEAD.map(str::to_owned);
    let of_row = |row: &KernelRow| {
        let kernels = format!("{} x {}", row.layers.count(), row.work.kernels);
        cells_of(row.layers_text(), row.function, kernels, &row.all_work())
    };
    let sum = cells_of("total".to_owned(), "", total.kernels.to_string(), &total);
    let mut lines: Vec<_> = [head].into_iter().chain(rows.iter().map(of_row)).collect();
    lines.push(sum);
    // Without recomputation.
    for column in [4, 7] {
        if lines[1..].iter().all(|line| line[column] == "-") {
            lines.iter_mut().for_each(|line| line[column].clear());
        }
    }
    aligned(&lines, 2..HEAD.len())
}

fn cells_of(
    layers: String,
    function: &str,
    kernels: String,
    work: &LayerWork,
) -> [String; HEAD.len()] {
    // Nothing is updated by matmuls but with Muon, whose FLOPs are part of the sums.
    let [forward, recomputed, backward, _] = work.flops.map(|flops| flops_text(flops as f64));
    let [forward_bytes, recomputed_bytes, backward_bytes, update] = work.bytes.map(bytes_text);
    let function = function.to_owned();
    [
        layers,
        function,
        kernels,
        forward,
        recomputed,
        backward,
        forward_bytes,
        recomputed_bytes,
        backward_bytes,
        update,
        bytes_text(work.kept),
    ]
}

//! The moment of a step at which its memory peaks, and the buffers in use then.

use std::cmp::Reverse;
use std::fmt::Write;

use crate::backend::{Bytes, Category};
use meshwright_core::__internal::Pass;
use meshwright_sim::{Context, StepLog};

use super::columns::aligned;
use super::kernels::layers_text;
use super::layer_field::{LayerField, LayerGroup};

/// Most groups of buffers that the text lists.
const MAX_LISTED: usize = 5;

/// The moment at which the memory of a step peaks.
#[derive(Debug, Clone, PartialEq)]
pub struct StepPeak {
    /// Bytes of all buffers.
    pub bytes: u64,
    /// The peak of each category, in the order of [`Category::ALL`]. Categories need not peak at the same time.
    pub by_category: [u64; Category::ALL.len()],
    /// What the rank computed then; `None` at the beginning of the step.
    pub context: Option<Context>,
    /// The buffers in use then, largest groups first.
    pub groups: Vec<BufferGroup>,
}

/// Buffers that one function has allocated for one purpose, in one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferGroup {
    pub category: Category,
    pub layers: LayerGroup,
    /// The forward function that allocated them, or its backward; empty outside of functions.
    pub function: &'static str,
    pub bytes: u64,
    /// Number of buffers.
    pub buffers: usize,
}

impl StepPeak {
    /// Finds the peak of a step. Offloaded buffers are not part of the memory of a device.
    pub fn of(log: &StepLog, is_device: bool) -> StepPeak {
        let peak = log.memory_peak(|category| !is_device || category != Category::Offloaded);
        let mut groups: Vec<BufferGroup> = Vec::new();
        for buffer in &peak.buffers {
            let Context { layer, function, .. } = &log.contexts[buffer.context.0 as usize];
            let layers = LayerGroup::new(LayerField::new(layer));
            let is_known = |group: &&mut BufferGroup| {
                (group.category, group.function) == (buffer.category, *function)
                    && group.layers.is_like(&layers)
            };
            match groups.iter_mut().find(is_known) {
                Some(group) => {
                    group.layers.add(&layers);
                    group.bytes += buffer.bytes;
                    group.buffers += 1;
                }
                None => groups.push(BufferGroup {
                    category: buffer.category,
                    layers,
                    function,
                    bytes: buffer.bytes,
                    buffers: 1,
                }),
            }
        }
        groups.sort_by_key(|group| Reverse(group.bytes));
        StepPeak {
            bytes: peak.bytes,
            by_category: log.peak_by_category(),
            context: peak.event.map(|event| log.context(&log.events.at(event)).clone()),
            groups,
        }
    }

    /// Returns the moment in words.
    pub fn moment(&self) -> String {
        let Some(Context { pass, action, layer, function }) = &self.context else {
            return "at its beginning".to_owned();
        };
        let pass = match pass {
            Pass::Forward => "in the forward pass",
            Pass::Recomputation => "in the recomputation",
            Pass::Backward => "in the backward pass",
            Pass::Update => "in the update",
        };
        let mut text = pass.to_owned();
        if !layer.is_empty() {
            let _ = write!(text, " of {layer}");
        }
        if !function.is_empty() {
            let _ = write!(text, ", {function}");
        }
        if let Some(action) = action {
            let (work, stage, micro_batch) = (action.work, action.stage, action.micro_batch);
            let _ = write!(text, " ({work} of micro-batch {micro_batch} on stage {stage})");
        }
        text
    }

    /// Returns lines of the largest groups of buffers.
    pub fn largest_groups(&self) -> String {
        let shown = &self.groups[..self.groups.len().min(MAX_LISTED)];
        let mut lines: Vec<_> = shown.iter().map(BufferGroup::cells).collect();
        let rest = &self.groups[shown.len()..];
        if !rest.is_empty() {
            let bytes: u64 = rest.iter().map(|group| group.bytes).sum();
            let buffers: usize = rest.iter().map(|group| group.buffers).sum();
            let [category, function] = ["rest".to_owned(), String::new()];
            let [bytes, buffers] = [Bytes(bytes as f64).to_string(), buffers_text(buffers)];
            lines.push([category, String::new(), function, bytes, buffers]);
        }
        aligned(&lines, 3..5)
    }
}

impl BufferGroup {
    fn cells(&self) -> [String; 5] {
        [
            self.category.name().to_owned(),
            layers_text(&self.layers, self.function),
            self.function.to_owned(),
            Bytes(self.bytes as f64).to_string(),
            buffers_text(self.buffers),
        ]
    }
}

fn buffers_text(buffers: usize) -> String {
    format!("{buffers} buffer{}", if buffers == 1 { "" } else { "s" })
}

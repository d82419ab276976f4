//! Kinds of computation of a step.

use std::collections::HashSet;
use std::fmt;

use meshwright_backend::{Kernel, KernelOp};
use meshwright_core::__internal::Pass;

use crate::record::{Context, EventKind, StepLog};

/// A kind of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Computation {
    /// Matmuls of layers before the head.
    Matmul,
    /// Attention.
    AttentionKernels,
    /// The layer that computes the loss, with its matmuls.
    Head,
    /// Everything after backward: norms of gradients, and the update of parameters.
    Update,
    /// All other kernels.
    Other,
}

impl Computation {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Computation; 5] = [
        Computation::Matmul,
        Computation::AttentionKernels,
        Computation::Head,
        Computation::Update,
        Computation::Other,
    ];

    /// Returns the name of the kind in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Computation::Matmul => "matmuls",
            Computation::AttentionKernels => "attention",
            Computation::Head => "head",
            Computation::Update => "optimizer",
            Computation::Other => "other",
        }
    }
}

impl fmt::Display for Computation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kinds of the kernels of a log.
pub struct Kinds<'a> {
    log: &'a StepLog,
    /// True for the contexts in layers, or in functions outside of layers, that compute a loss.
    is_head: Vec<bool>,
}

impl<'a> Kinds<'a> {
    /// Finds the layers and functions that compute a loss.
    pub fn new(log: &'a StepLog) -> Kinds<'a> {
        let mut has_loss = vec![false; log.contexts.len()];
        for event in log.events.iter() {
            if let EventKind::Kernel(kernel) = &event.kind {
                has_loss[event.context.0 as usize] |= is_loss(kernel.op);
            }
        }
        let contexts = log.contexts.iter().zip(has_loss);
        let losses = contexts.filter(|(_, has_loss)| *has_loss).map(|(context, _)| place(context));
        let heads: HashSet<&str> = losses.filter(|place| !place.is_empty()).collect();
        let is_head = log.contexts.iter().map(|context| heads.contains(place(context))).collect();
        Kinds { log, is_head }
    }

    /// Returns the kind of a kernel in the context with this index.
    pub fn kind(&self, kernel: &Kernel, context: usize) -> Computation {
        match kernel.op {
            _ if self.log.contexts[context].pass == Pass::Update => Computation::Update,
            op if is_loss(op) || self.is_head[context] => Computation::Head,
            KernelOp::Adamw
            | KernelOp::SgdKernel
            | KernelOp::RoundState
            | KernelOp::ApplyUpdate
            | KernelOp::SumSquares => Computation::Update,
            KernelOp::MergeAttention => Computation::AttentionKernels,
            op if op.is_attention() => Computation::AttentionKernels,
            op if op.is_matmul() => Computation::Matmul,
            _ => Computation::Other,
        }
    }
}

/// Returns the layer; outside of layers, the function.
fn place(context: &Context) -> &str {
    if context.layer.is_empty() { context.function } else { &context.layer }
}

fn is_loss(op: KernelOp) -> bool {
    matches!(
        op,
        KernelOp::RowMax
            | KernelOp::ExpSum
            | KernelOp::MaxExpSum
            | KernelOp::CrossEntropyLoss
            | KernelOp::CrossEntropyGrad
            | KernelOp::CrossEntropyKernel
            | KernelOp::FinishLogits
            | KernelOp::SmoothedGrad
    )
}

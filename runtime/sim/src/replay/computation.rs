//! Kinds of computation of a step.

use std::collections::HashSet;
use std::fmt;

use meshwright_backend::{Kernel, KernelOp};
use meshwright_core::__internal::Pass;

use crate::record::{EventKind, StepLog};

/// A kind of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Computation {
    /// Matmuls of layers before the head.
    Matmul,
    /// Attention.
    Attention,
    /// The layer that computes the loss, with its matmuls.
    Head,
    /// Everything after backward: norms of gradients, and the update of parameters.
    Optimizer,
    /// All other kernels.
    Other,
}

impl Computation {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Computation; 5] = [
        Computation::Matmul,
        Computation::Attention,
        Computation::Head,
        Computation::Optimizer,
        Computation::Other,
    ];

    /// Returns the name of the kind in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Computation::Matmul => "matmuls",
            Computation::Attention => "attention",
            Computation::Head => "head",
            Computation::Optimizer => "optimizer",
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
    /// True for the contexts in layers that compute a loss.
    is_head: Vec<bool>,
}

impl<'a> Kinds<'a> {
    /// Finds the layers that compute a loss.
    pub fn new(log: &'a StepLog) -> Kinds<'a> {
        let mut has_loss = vec![false; log.contexts.len()];
        for event in log.events.iter() {
            if let EventKind::Kernel(kernel) = &event.kind {
                has_loss[event.context.0 as usize] |= is_loss(kernel.op);
            }
        }
        let contexts = log.contexts.iter().zip(has_loss);
        let losses = contexts.filter(|(_, has_loss)| *has_loss).map(|(context, _)| &*context.layer);
        let heads: HashSet<&str> = losses.filter(|layer| !layer.is_empty()).collect();
        let is_head = log.contexts.iter().map(|context| heads.contains(&*context.layer)).collect();
        Kinds { log, is_head }
    }

    /// Returns the kind of a kernel in the context with this index.
    pub fn kind(&self, kernel: &Kernel, context: usize) -> Computation {
        match kernel.op {
            _ if self.log.contexts[context].pass == Pass::Update => Computation::Optimizer,
            op if is_loss(op) || self.is_head[context] => Computation::Head,
            KernelOp::Adamw | KernelOp::Sgd | KernelOp::ApplyUpdate | KernelOp::SumSquares => {
                Computation::Optimizer
            }
            KernelOp::MergeAttention => Computation::Attention,
            op if op.is_attention() => Computation::Attention,
            op if op.is_matmul() => Computation::Matmul,
            _ => Computation::Other,
        }
    }
}

fn is_loss(op: KernelOp) -> bool {
    matches!(
        op,
        KernelOp::RowMax
            | KernelOp::ExpSum
            | KernelOp::MaxExpSum
            | KernelOp::CrossEntropyLoss
            | KernelOp::CrossEntropyGrad
            | KernelOp::CrossEntropy
    )
}

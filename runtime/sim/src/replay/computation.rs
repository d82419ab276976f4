//! Kinds of computation of a step.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use meshwright_backend::{Kernel, KernelOp};
use meshwright_core::__internal::Pass;

use crate::record::{Context, EventKind, StepLog};

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
    /// Layers that compute a loss.
    heads: HashSet<&'a Arc<str>>,
}

impl<'a> Kinds<'a> {
    /// Finds the layers that compute a loss.
    pub fn new(log: &'a StepLog) -> Kinds<'a> {
        let mut heads = HashSet::new();
        for event in &log.events {
            if let EventKind::Kernel(kernel) = &event.kind
                && is_loss(kernel.op)
            {
                heads.insert(&log.context(event).layer);
            }
        }
        heads.retain(|layer| !layer.is_empty());
        Kinds { log, heads }
    }

    /// Returns the kind of a kernel in the context with this index.
    pub fn kind(&self, kernel: &Kernel, context: usize) -> Computation {
        let Context { pass, layer, .. } = &self.log.contexts[context];
        match kernel.op {
            _ if *pass == Pass::Update => Computation::Optimizer,
            op if is_loss(op) || self.heads.contains(layer) => Computation::Head,
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

//! Kernels of other software.

use meshwright::backend::{Kernel, KernelOp};
use meshwright::sim::{EventKind, StepEvent, StepLog};

use super::{list_of, replace};

/// Joins matmuls of one function that have the same rows and contraction: queries, keys and values, or gate and up,
/// which other software multiplies by one matrix.
pub fn merge_projections(log: &mut StepLog) {
    let mut merged: Vec<StepEvent> = Vec::with_capacity(log.events.len());
    for event in log.events.iter() {
        let joined = match event.kind {
            EventKind::Kernel(kernel) => merged
                .iter_mut()
                .rev()
                .take(3)
                .take_while(|other| other.context == event.context)
                .any(|other| match &mut other.kind {
                    EventKind::Kernel(other) => join(other, &kernel),
                    _ => false,
                }),
            _ => false,
        };
        if !joined {
            merged.push(event);
        }
    }
    log.events = list_of(merged);
}

fn join(matmul: &mut Kernel, other: &Kernel) -> bool {
    let is_matmul = |kernel: &Kernel| kernel.op == KernelOp::Gemm;
    let [m, _, k, _] = matmul.dims;
    // Gradients of weights and of inputs alternate, and have other rows.
    if !is_matmul(matmul) || !is_matmul(other) || [m, k] != [other.dims[0], other.dims[2]] {
        return false;
    }
    matmul.dims[1] += other.dims[1];
    matmul.flops += other.flops;
    matmul.read += other.read;
    matmul.written += other.written;
    true
}

/// Multiplies the bytes of elementwise operations, norms and losses.
pub fn unfuse(log: &mut StepLog, factor: f64) {
    scale_bytes(log, |_, kernel| {
        let is_pass = matches!(
            kernel.op,
            KernelOp::Map
                | KernelOp::MapBackward
                | KernelOp::RmsNormKernel
                | KernelOp::RmsNormBackward
                | KernelOp::LayerNormKernel
                | KernelOp::LayerNormBackward
                | KernelOp::RopeKernel
                | KernelOp::CrossEntropyKernel
                | KernelOp::CrossEntropyGrad
                | KernelOp::MaxExpSum
                | KernelOp::Adamw
        );
        if is_pass { factor } else { 1.0 }
    });
}

/// Sets the rate of matmuls of layers, except for the head's, to that of fp8, and adds passes that cast their operands.
pub fn cast_to_fp8(log: &mut StepLog, rate: f64) {
    replace(log, |log, event, kinds| match event.kind {
        EventKind::Kernel(mut kernel)
            if kernel.op.is_matmul() && &*log.context(event).layer != "head" =>
        {
            let [m, n, k] = [0, 1, 2].map(|dim| u64::from(kernel.dims[dim]));
            // Gradients of weights are in f32. Their operands are the transposed ones of the other matmuls.
            let is_of_weight = kernel.written >= 4 * m * n;
            if !is_of_weight {
                let (dims, dtype) = ([kernel.dims[0], 0, 0, 0], kernel.dtype);
                let (read, written) = (2 * m * k, 2 * m * k);
                kinds.push(EventKind::Kernel(Kernel {
                    op: KernelOp::Cast,
                    dims,
                    dtype,
                    flops: 0,
                    read,
                    written,
                }));
            }
            kernel.flops = (kernel.flops as f64 / rate) as u64;
            kernel.read /= 2;
            kinds.push(EventKind::Kernel(kernel));
        }
        kind => kinds.push(kind),
    });
}

/// Multiplies the bytes of kernels by a factor.
pub fn scale_bytes(log: &mut StepLog, factor: impl Fn(&StepLog, &Kernel) -> f64) {
    replace(log, |log, event, kinds| {
        kinds.push(match event.kind {
            EventKind::Kernel(mut kernel) => {
                let factor = factor(log, &kernel);
                kernel.read = (kernel.read as f64 * factor) as u64;
                kernel.written = (kernel.written as f64 * factor) as u64;
                EventKind::Kernel(kernel)
            }
            kind => kind,
        });
    });
}

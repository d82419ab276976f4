//! Communication of other software.

use std::collections::HashSet;

use meshwright::backend::{DType, Kernel, KernelOp};
use meshwright::mesh::{AxisId, AxisSet};
use meshwright::sim::cluster::Gpu;
use meshwright::sim::{CommCall, CommOpKind, EventKind, Pass, StepEvent, StepLog};

use super::kernels::scale_bytes;
use super::{list_of, replace};

const TP: AxisSet = AxisSet::of(AxisId::Tp);

/// Sums partial results by all-reduces, and computes norms and residuals of the whole stream on each rank: tensor
/// parallelism without sequence parallelism.
pub fn reduce_whole_stream(log: &mut StepLog, tp: usize) {
    let mut left_out = HashSet::new();
    replace(log, |_, event, kinds| match event.kind {
        EventKind::Call(call) if call.axes == TP && call.op == CommOpKind::AllGather => {
            left_out.insert(call.number);
        }
        EventKind::Await { number, of_previous_step: false } if left_out.contains(&number) => {}
        EventKind::Call(call) if call.axes == TP && call.op == CommOpKind::ReduceScatter => {
            let (op, bytes) = (CommOpKind::AllReduce, 2 * call.bytes);
            kinds.push(EventKind::Call(CommCall { op, bytes, ..call }));
        }
        kind => kinds.push(kind),
    });
    scale_bytes(log, |_, kernel| {
        let is_norm = matches!(
            kernel.op,
            KernelOp::LayerNormKernel
                | KernelOp::LayerNormBackward
                | KernelOp::RmsNormKernel
                | KernelOp::RmsNormBackward
        );
        if is_norm { tp as f64 } else { 1.0 }
    });
}

/// Sends the whole message between stages on each rank along `tp`.
pub fn send_whole_messages(log: &mut StepLog, tp: usize) {
    replace(log, |_, event, kinds| {
        kinds.push(match event.kind {
            EventKind::Call(call) if call.message.is_some() => {
                EventKind::Call(CommCall { bytes: tp as u64 * call.bytes, ..call })
            }
            kind => kind,
        });
    });
}

/// Removes the overlapped fraction of tensor-parallel collectives, which overlap with parts of matmuls.
pub fn hide_tensor_parallel(log: &mut StepLog, hidden: f64) {
    replace(log, |_, event, kinds| {
        kinds.push(match event.kind {
            EventKind::Call(call) if call.axes == TP && call.op != CommOpKind::AllReduce => {
                let bytes = (call.bytes as f64 * (1.0 - hidden)) as u64;
                EventKind::Call(CommCall { bytes, ..call })
            }
            kind => kind,
        });
    });
}

/// Makes both sides of a message between pipeline stages compute nothing while it is sent.
pub fn block_for_messages(log: &mut StepLog, gpu: &Gpu, bandwidth: f64) {
    replace(log, |_, event, kinds| {
        kinds.push(event.kind);
        if let EventKind::Call(call) = event.kind
            && call.op == CommOpKind::Send
            && call.message.is_some()
        {
            // A copy from the host that takes as long as the message.
            let written = (call.bytes as f64 / bandwidth * gpu.host_bandwidth.value) as u64;
            let (op, dims, dtype) = (KernelOp::Upload, [0; 4], DType::Bf16);
            kinds.push(EventKind::Kernel(Kernel { op, dims, dtype, flops: 0, read: 0, written }));
        }
    });
}

/// Makes all collectives of data parallelism block, and moves collectives of backward passes after the last backward
/// pass and its messages.
pub fn expose_data_parallel(log: &mut StepLog) {
    let mut blocking = HashSet::new();
    let (mut events, mut moved): (Vec<StepEvent>, Vec<StepEvent>) = Default::default();
    let mut end_of_backward = 0;
    for event in log.events.iter() {
        let is_backward = log.contexts[event.context.0 as usize].pass == Pass::Backward;
        match event.kind {
            EventKind::Call(call) if call.is_asynchronous && is_of_data(call.axes) => {
                blocking.insert(call.number);
                let kind = EventKind::Call(CommCall { is_asynchronous: false, ..call });
                let list = if is_backward { &mut moved } else { &mut events };
                list.push(StepEvent { kind, ..event });
            }
            EventKind::Await { number, of_previous_step: false } if blocking.contains(&number) => {}
            kind => {
                events.push(event);
                let is_message = matches!(kind, EventKind::Call(CommCall { message: Some(_), .. }));
                if is_backward || is_message {
                    end_of_backward = events.len();
                }
            }
        }
    }
    events.splice(end_of_backward..end_of_backward, moved);
    log.events = list_of(events);
}

/// Returns true for groups of ranks with different data.
fn is_of_data(axes: AxisSet) -> bool {
    let has = |axis| axes.contains(axis);
    (has(AxisId::Dp) || has(AxisId::Fsdp)) && !has(AxisId::Tp) && !has(AxisId::Pp)
}

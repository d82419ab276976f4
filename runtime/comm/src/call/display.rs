//! Calls in error messages and traces.

use std::fmt;

use meshwright_backend::DType;
use meshwright_mesh::{AxisId, AxisSet};

use super::{Call, CommOp};

impl Call {
    /// Returns the operation with its arguments: `all_reduce(sum, f32 x 16) over tp`.
    pub fn operation(&self) -> String {
        let dtype = self.dtype.map_or("", DType::name);
        let args = match &self.op {
            CommOp::AllReduce { op, count } => format!("({}, {dtype} x {count})", op.name()),
            CommOp::AllGather { blocks } => format!("({dtype}, {blocks})"),
            CommOp::ReduceScatter { blocks } => format!("(sum, {dtype}, {blocks})"),
            CommOp::AllToAll { send, recv } => {
                format!("({dtype}, send {send:?}, receive {recv:?})")
            }
            CommOp::Broadcast { root, count } => {
                format!("({dtype} x {count} from rank {})", root.world_rank)
            }
            CommOp::Reduce { root, op, count } => {
                format!("({}, {dtype} x {count} to rank {})", op.name(), root.world_rank)
            }
            CommOp::Scatter { root, counts } => {
                format!("({dtype}, {counts:?} from rank {})", root.world_rank)
            }
            CommOp::Gather { root, counts } => {
                format!("({dtype}, {counts:?} to rank {})", root.world_rank)
            }
            CommOp::Barrier => String::new(),
            CommOp::Send { to, count } => {
                format!("({dtype} x {count} to rank {})", to.world_rank)
            }
            CommOp::Recv { from, count } => {
                format!("({dtype} x {count} from rank {})", from.world_rank)
            }
        };
        let mode = if self.asynchronous { "asynchronous " } else { "" };
        let memory = if self.on_device { " in device memory" } else { "" };
        format!("{mode}{}{args}{memory} over {}", self.op.name(), axes_name(self.axes))
    }
}

/// The operation and its site: `all_reduce(sum, f32 x 16) over tp, issued by blocks.3.mlp.down (src/model.rs:12:9)`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, issued by {}", self.operation(), self.site)
    }
}

/// Returns the axes of a group as messages name them.
pub fn axes_name(axes: AxisSet) -> String {
    match axes.iter().count() {
        0 => "no axis".into(),
        count if count == AxisId::ALL.len() => "the world".into(),
        _ => axes.to_string(),
    }
}

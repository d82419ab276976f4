//! The signature of a call: what the members of a group must agree on.

use std::sync::Arc;

use crate::backend::{DType, View};
use crate::layout::{AxisId, AxisSet};

use super::{Blocks, CommError, ReduceOp, Site};

/// One operation with everything that has to be equal, or to fit, among the members. Ranks are world ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    AllReduce { op: ReduceOp, count: usize },
    AllGather { blocks: Blocks },
    ReduceScatter { blocks: Blocks },
    AllToAll { send: Arc<[usize]>, recv: Arc<[usize]> },
    Broadcast { root: usize, count: usize },
    Reduce { root: usize, op: ReduceOp, count: usize },
    Scatter { root: usize, counts: Arc<[usize]> },
    Gather { root: usize, counts: Arc<[usize]> },
    Barrier,
    Send { to: usize, count: usize },
    Recv { from: usize, count: usize },
}

impl Op {
    /// The name of the operation, without its arguments.
    pub fn name(&self) -> &'static str {
        match self {
            Op::AllReduce { .. } => "all_reduce",
            Op::AllGather { .. } => "all_gather",
            Op::ReduceScatter { .. } => "reduce_scatter",
            Op::AllToAll { .. } => "all_to_all",
            Op::Broadcast { .. } => "broadcast",
            Op::Reduce { .. } => "reduce",
            Op::Scatter { .. } => "scatter",
            Op::Gather { .. } => "gather",
            Op::Barrier => "barrier",
            Op::Send { .. } => "send",
            Op::Recv { .. } => "recv",
        }
    }
}

impl Op {
    /// Bytes that a member sends, as [`CommStats`](super::CommStats) counts them; `members` are the world ranks.
    pub fn sent(&self, dtype: Option<DType>, member: usize, members: &[usize]) -> usize {
        let (element, size) = (dtype.map_or(0, DType::bytes), members.len());
        // Counts of another number than there are members are refused when the call is carried out.
        let own = |counts: &[usize]| counts.get(member).copied().unwrap_or(0);
        let to_others = |counts: &[usize]| counts.iter().sum::<usize>() - own(counts);
        // What the other members hold: `bytes (p-1) / p`.
        let shared = |bytes: usize| bytes / size * (size - 1) + bytes % size * (size - 1) / size;
        match self {
            Op::AllReduce { count, .. } => 2 * shared(count * element),
            Op::AllGather { blocks } | Op::ReduceScatter { blocks } => {
                shared(blocks.total() * element)
            }
            Op::Broadcast { count, .. } | Op::Reduce { count, .. } => shared(count * element),
            Op::AllToAll { send, .. } => to_others(send) * element,
            Op::Scatter { root, counts } if *root == members[member] => to_others(counts) * element,
            Op::Gather { root, counts } if *root != members[member] => own(counts) * element,
            Op::Send { count, .. } => count * element,
            Op::Scatter { .. } | Op::Gather { .. } | Op::Barrier | Op::Recv { .. } => 0,
        }
    }
}

/// An operation with its element type, its group, and who issued it.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub op: Op,
    pub dtype: Option<DType>,
    /// Whether the operand is in memory of a device.
    pub on_device: bool,
    pub axes: AxisSet,
    pub asynchronous: bool,
    pub site: Site,
}

/// The first respect in which two calls differ, the one that says most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Operation,
    DType,
    Place,
    ReduceOp,
    Root,
    Count,
    Field,
    Line,
}

impl Difference {
    /// Where the cause usually lies.
    pub fn hint(self) -> &'static str {
        match self {
            Difference::Operation => {
                "One rank skipped a call, made an extra one, or made two in another order: look for control flow \
                 around these lines that differs by rank."
            }
            Difference::DType => "The element types differ: look at how these buffers were made.",
            Difference::Place => {
                "Some operands are in host memory and some in device memory: make the buffers of all ranks from meters of \
                 the same kind."
            }
            Difference::ReduceOp => {
                "The reductions differ: look at the operation passed at these lines."
            }
            Difference::Root => "The roots differ: every rank must name the same one.",
            Difference::Field => {
                "The calls are alike but come from different places of the model: one rank makes them in another order, \
                 or makes one more; look for control flow around these lines that differs by rank."
            }
            Difference::Line => {
                "The calls are alike but come from different lines: one rank makes them in another order, or makes one \
                 more; look for control flow around these lines that differs by rank."
            }
            Difference::Count => {
                "The sizes differ: look at the shapes at these lines, and at dims that do not divide evenly or that \
                 depend on each rank's own data."
            }
        }
    }
}

impl Call {
    /// How the calls of members `a` and `b` of a group differ, if they do.
    pub fn difference(a: (usize, &Call), b: (usize, &Call)) -> Option<Difference> {
        let ((a_idx, a), (b_idx, b)) = (a, b);
        if std::mem::discriminant(&a.op) != std::mem::discriminant(&b.op) {
            return Some(Difference::Operation);
        }
        if a.dtype != b.dtype {
            return Some(Difference::DType);
        }
        if a.on_device != b.on_device {
            return Some(Difference::Place);
        }
        let other_field = match a.site.field() == b.site.field() {
            false => Some(Difference::Field),
            true => (a.is_symmetric() && a.comes_from_other_line(b)).then_some(Difference::Line),
        };
        // What differs by design between members: the counts of an all-to-all fit crosswise.
        if let (Op::AllToAll { send, recv }, Op::AllToAll { send: b_send, recv: b_recv }) =
            (&a.op, &b.op)
        {
            let fits = send[b_idx] == b_recv[a_idx] && recv[b_idx] == b_send[a_idx];
            return if fits { other_field } else { Some(Difference::Count) };
        }
        if a.op == b.op {
            return other_field;
        }
        Some(match a.root() != b.root() {
            true => Difference::Root,
            false if a.reduce_op() != b.reduce_op() => Difference::ReduceOp,
            false => Difference::Count,
        })
    }

    /// Whether all members make the same call, so that it stands at one line of the program.
    fn is_symmetric(&self) -> bool {
        self.root().is_none() && !matches!(self.op, Op::Send { .. } | Op::Recv { .. })
    }

    /// Whether both lines are known, and are different.
    fn comes_from_other_line(&self, other: &Call) -> bool {
        match (self.site.location(), other.site.location()) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        }
    }

    /// How a message differs from what its receiver expects, if it does.
    pub fn message_difference(sent: &Call, expected: &Call) -> Option<Difference> {
        let (Op::Send { count: sent_count, .. }, Op::Recv { count, .. }) = (&sent.op, &expected.op)
        else {
            return Some(Difference::Operation);
        };
        match sent.dtype != expected.dtype {
            true => Some(Difference::DType),
            false if sent.on_device != expected.on_device => Some(Difference::Place),
            false => (sent_count != count).then_some(Difference::Count),
        }
    }

    /// An error about an argument of this call.
    pub fn refuse(&self, problem: String) -> CommError {
        CommError::Argument { call: self.to_string(), problem }
    }

    /// Reductions of integers are refused.
    pub fn require_float(&self) -> Result<(), CommError> {
        match self.dtype {
            Some(DType::U32) => Err(self.refuse("reductions take f32 or bf16, not u32".into())),
            Some(DType::F32 | DType::Bf16) | None => Ok(()),
        }
    }

    pub fn require_len(&self, what: &str, len: usize, expected: usize) -> Result<(), CommError> {
        match len == expected {
            true => Ok(()),
            false => {
                Err(self.refuse(format!("{what} has {len} elements where {expected} are expected")))
            }
        }
    }

    /// Both operands of a rank have one dtype and are in the same memory.
    pub fn require_alike(&self, src: View<'_>, dst: View<'_>) -> Result<(), CommError> {
        let place = |view: View<'_>| if view.device().is_some() { "device" } else { "host" };
        if src.dtype() != dst.dtype() {
            let (src, dst) = (src.dtype(), dst.dtype());
            return Err(
                self.refuse(format!("src is {src} and dst is {dst}; they must be the same"))
            );
        }
        match src.device().is_some() == dst.device().is_some() {
            true => Ok(()),
            false => Err(self.refuse(format!(
                "src is in {} memory and dst is in {} memory; they must be in the same",
                place(src),
                place(dst)
            ))),
        }
    }

    /// A member of a group of `size` members.
    pub fn require_member(&self, name: &str, member: usize, size: usize) -> Result<(), CommError> {
        match member < size {
            true => Ok(()),
            false => {
                let last = size - 1;
                let problem =
                    format!("`{name}` is {member}, but the group has the members 0 to {last}");
                Err(self.refuse(problem))
            }
        }
    }

    /// One entry for each of `size` members.
    pub fn require_counts(
        &self,
        name: &str,
        counts: &[usize],
        size: usize,
    ) -> Result<(), CommError> {
        match counts.len() == size {
            true => Ok(()),
            false => Err(self.refuse(format!(
                "`{name}` has {} entries, but the group has {size} members; give one entry per member",
                counts.len()
            ))),
        }
    }

    /// The arguments of a collective in place, on `len` elements.
    pub fn require_row(&self, len: usize, blocks: &Blocks, size: usize) -> Result<(), CommError> {
        self.require_counts("blocks", &blocks.lens, size)?;
        self.require_len("data", len, blocks.total())?;
        match blocks.outer {
            1 => Ok(()),
            outer => Err(self.refuse(format!(
                "`blocks` has {outer} rows, but a collective in place takes one; use the form with `src` and `dst`"
            ))),
        }
    }

    /// For an operand that the root passes, and nobody else.
    pub fn require_at_root(&self, what: &str, given: bool, is_root: bool) -> Result<(), CommError> {
        match (given, is_root) {
            (false, true) => {
                Err(self.refuse(format!("this rank is the root and must pass {what}")))
            }
            (true, false) => {
                Err(self.refuse(format!("only the root passes {what}; pass None here")))
            }
            _ => Ok(()),
        }
    }

    /// In a scatter or gather over `size` members: the part of `member` has its count, and the root alone passes the whole
    /// of all parts.
    pub fn require_parts(
        &self,
        root: usize,
        member: usize,
        counts: &[usize],
        size: usize,
        (part_name, part): (&str, View<'_>),
        (whole_name, whole): (&str, Option<View<'_>>),
    ) -> Result<(), CommError> {
        self.require_member("root", root, size)?;
        self.require_counts("counts", counts, size)?;
        self.require_len(part_name, part.len(), counts[member])?;
        self.require_at_root(whole_name, whole.is_some(), root == member)?;
        match whole {
            Some(whole) => self.require_len(whole_name, whole.len(), counts.iter().sum()),
            None => Ok(()),
        }
    }

    /// In an all-to-all: how many elements lie before those for `member`.
    pub fn sent_before(&self, member: usize) -> usize {
        match &self.op {
            Op::AllToAll { send, .. } => send[..member].iter().sum(),
            _ => 0,
        }
    }

    /// Whether each two members agree among themselves, instead of all on one thing.
    pub fn is_pairwise(&self) -> bool {
        matches!(self.op, Op::AllToAll { .. })
    }

    fn root(&self) -> Option<usize> {
        match self.op {
            Op::Broadcast { root, .. }
            | Op::Reduce { root, .. }
            | Op::Scatter { root, .. }
            | Op::Gather { root, .. } => Some(root),
            _ => None,
        }
    }

    fn reduce_op(&self) -> Option<ReduceOp> {
        match self.op {
            Op::AllReduce { op, .. } | Op::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The operation with its arguments: `all_reduce(sum, f32 x 16) over tp`.
    pub fn operation(&self) -> String {
        let dtype = self.dtype.map_or("", DType::name);
        let args = match &self.op {
            Op::AllReduce { op, count } => format!("({}, {dtype} x {count})", op.name()),
            Op::AllGather { blocks } => format!("({dtype}, {blocks})"),
            Op::ReduceScatter { blocks } => format!("(sum, {dtype}, {blocks})"),
            Op::AllToAll { send, recv } => format!("({dtype}, send {send:?}, receive {recv:?})"),
            Op::Broadcast { root, count } => format!("({dtype} x {count} from rank {root})"),
            Op::Reduce { root, op, count } => {
                format!("({}, {dtype} x {count} to rank {root})", op.name())
            }
            Op::Scatter { root, counts } => format!("({dtype}, {counts:?} from rank {root})"),
            Op::Gather { root, counts } => format!("({dtype}, {counts:?} to rank {root})"),
            Op::Barrier => String::new(),
            Op::Send { to, count } => format!("({dtype} x {count} to rank {to})"),
            Op::Recv { from, count } => format!("({dtype} x {count} from rank {from})"),
        };
        let when = if self.asynchronous { "asynchronous " } else { "" };
        let place = if self.on_device { " in device memory" } else { "" };
        format!("{when}{}{args}{place} over {}", self.op.name(), axes_name(self.axes))
    }
}

/// The operation and its site: `all_reduce(sum, f32 x 16) over tp, issued by blocks.3.mlp.down (src/model.rs:12:9)`.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, issued by {}", self.operation(), self.site)
    }
}

/// The axes of a group as messages name them.
pub(super) fn axes_name(axes: AxisSet) -> String {
    match axes.iter().count() {
        0 => "no axis".into(),
        count if count == AxisId::ALL.len() => "the world".into(),
        _ => axes.to_string(),
    }
}

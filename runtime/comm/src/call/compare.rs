//! Comparison of the calls that the members of a group issue.

use super::{Call, CommOp, ReduceOp};

/// The first difference of two calls, the most telling one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallDifference {
    Operation,
    Message,
    DType,
    Memory,
    ReduceOp,
    Root,
    Count,
    Field,
    Line,
}

impl CallDifference {
    /// The usual cause, and where to look for it.
    pub fn hint(self) -> &'static str {
        match self {
            CallDifference::Operation => {
                "One rank skipped a call, made an extra one, or made two in another order: look for control flow \
                 around these lines that differs by rank."
            }
            CallDifference::Message => {
                "These are different messages: one rank sends in another order than the other one receives; look at \
                 the pipeline schedules of both ranks."
            }
            CallDifference::DType => {
                "The element types differ: look at how these buffers were made."
            }
            CallDifference::Memory => {
                "Some operands are in host memory and some in device memory: make the buffers of all ranks from \
                 allocators of the same kind."
            }
            CallDifference::ReduceOp => {
                "The reductions differ: look at the operation passed at these lines."
            }
            CallDifference::Root => "The roots differ: every rank must name the same one.",
            CallDifference::Field => {
                "The calls are alike but come from different places of the model: one rank makes them in another \
                 order, or makes one more; look for control flow around these lines that differs by rank."
            }
            CallDifference::Line => {
                "The calls are alike but come from different lines: one rank makes them in another order, or makes one \
                 more; look for control flow around these lines that differs by rank."
            }
            CallDifference::Count => {
                "The sizes differ: look at the shapes at these lines, and at dims that do not divide evenly or that \
                 depend on each rank's own data."
            }
        }
    }
}

impl Call {
    /// Returns the first difference between calls of one collective, given by group rank.
    pub(crate) fn first_difference(calls: &[(usize, &Call)]) -> Option<CallDifference> {
        let pairs = (0..calls.len()).flat_map(|a| (a + 1..calls.len()).map(move |b| (a, b)));
        pairs
            // Equality is transitive, so comparing with the first is enough; an all-to-all has to fit pairwise.
            .filter(|(a, _)| *a == 0 || calls[*a].1.is_pairwise())
            .filter_map(|(a, b)| Call::difference(calls[a], calls[b]))
            .min()
    }

    /// Returns the difference between the calls of members `a` and `b` of a group, if any.
    fn difference(a: (usize, &Call), b: (usize, &Call)) -> Option<CallDifference> {
        let ((a_rank, a), (b_rank, b)) = (a, b);
        if std::mem::discriminant(&a.op) != std::mem::discriminant(&b.op) {
            return Some(CallDifference::Operation);
        }
        if a.dtype != b.dtype {
            return Some(CallDifference::DType);
        }
        if a.on_device != b.on_device {
            return Some(CallDifference::Memory);
        }
        let other_site = if a.site.field() == b.site.field() {
            (a.is_symmetric() && a.has_other_line(b)).then_some(CallDifference::Line)
        } else {
            Some(CallDifference::Field)
        };
        // The counts of an all-to-all differ between members by design: they have to fit crosswise.
        if let (CommOp::AllToAll { send, recv }, CommOp::AllToAll { send: b_send, recv: b_recv }) =
            (&a.op, &b.op)
        {
            let fits = send[b_rank] == b_recv[a_rank] && recv[b_rank] == b_send[a_rank];
            return if fits { other_site } else { Some(CallDifference::Count) };
        }
        if a.op == b.op {
            return other_site;
        }
        Some(if a.op.root() != b.op.root() {
            CallDifference::Root
        } else if a.reduce_op() != b.reduce_op() {
            CallDifference::ReduceOp
        } else {
            CallDifference::Count
        })
    }

    /// Returns the difference between a message and the receive that it is matched with, if any.
    pub(crate) fn message_difference(sent: &Call, expected: &Call) -> Option<CallDifference> {
        let (CommOp::Send { count: sent_count, .. }, CommOp::Recv { count, .. }) =
            (&sent.op, &expected.op)
        else {
            return Some(CallDifference::Operation);
        };
        let messages = sent.site.message().zip(expected.site.message());
        if messages.is_some_and(|(sent, expected)| sent != expected) {
            return Some(CallDifference::Message);
        }
        if sent.dtype != expected.dtype {
            Some(CallDifference::DType)
        } else if sent.on_device != expected.on_device {
            Some(CallDifference::Memory)
        } else {
            (sent_count != count).then_some(CallDifference::Count)
        }
    }

    /// Returns `true` if all members issue the same call, from the same line of the program.
    fn is_symmetric(&self) -> bool {
        self.op.root().is_none() && !self.op.is_point_to_point()
    }

    /// Returns `true` if members agree pairwise instead of all on the same arguments.
    fn is_pairwise(&self) -> bool {
        matches!(self.op, CommOp::AllToAll { .. })
    }

    /// Returns `true` if both lines are known and differ.
    fn has_other_line(&self, other: &Call) -> bool {
        let lines = self.site.location().zip(other.site.location());
        lines.is_some_and(|(own, other)| own != other)
    }

    fn reduce_op(&self) -> Option<ReduceOp> {
        match self.op {
            CommOp::AllReduce { op, .. } | CommOp::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }
}

//! Argument checks, which run on the issuing rank before an engine gets the call.

use meshwright_backend::{DType, View};

use super::super::{Blocks, CommError, GroupMember, Operands, Peer};
use super::{Call, CommOp};

type CheckResult = Result<(), CommError>;

impl Call {
    /// Checks the arguments and operands of this call, which `member` issues.
    ///
    /// # Errors
    /// [`CommError::Argument`] for the first one that does not fit.
    pub(crate) fn check_arguments(
        &self,
        member: &GroupMember,
        operands: &Operands<'_>,
    ) -> CheckResult {
        let (own, size) = (member.group_rank(), member.size());
        let (src, dst) = operands.views();
        match &self.op {
            CommOp::AllReduce { .. } => self.require_float()?,
            CommOp::AllGather { blocks } => match src {
                Some(part) => {
                    self.require_counts("blocks", &blocks.lens, size)?;
                    self.require_len("src", len(src), blocks.owned(own))?;
                    self.require_len("dst", len(dst), blocks.total())?;
                    self.require_alike(Some(part), dst)?;
                }
                None => self.require_row(len(dst), blocks, size)?,
            },
            CommOp::ReduceScatter { blocks } => {
                self.require_float()?;
                match src {
                    Some(whole) => {
                        self.require_counts("blocks", &blocks.lens, size)?;
                        self.require_len("src", len(src), blocks.total())?;
                        self.require_len("dst", len(dst), blocks.owned(own))?;
                        self.require_alike(Some(whole), dst)?;
                    }
                    None => self.require_row(len(dst), blocks, size)?,
                }
            }
            CommOp::AllToAll { send, recv } => {
                self.require_counts("send", send, size)?;
                self.require_counts("recv", recv, size)?;
                self.require_len("src", len(src), send.iter().sum())?;
                self.require_len("dst", len(dst), recv.iter().sum())?;
                self.require_alike(src, dst)?;
                self.require_len("the part that a rank sends to itself", recv[own], send[own])?;
            }
            CommOp::Broadcast { root, .. } => self.require_member("root", *root, size)?,
            CommOp::Reduce { root, .. } => {
                self.require_float()?;
                self.require_member("root", *root, size)?;
            }
            CommOp::Scatter { root, counts } => {
                self.require_rooted(
                    member,
                    Rooted {
                        root: *root,
                        counts,
                        part: Operand { name: "dst", view: dst },
                        whole: Operand { name: "src", view: src },
                    },
                )?;
                self.require_alike(src, dst)?;
            }
            CommOp::Gather { root, counts } => {
                self.require_rooted(
                    member,
                    Rooted {
                        root: *root,
                        counts,
                        part: Operand { name: "src", view: src },
                        whole: Operand { name: "dst", view: dst },
                    },
                )?;
                self.require_alike(src, dst)?;
            }
            CommOp::Barrier => {}
            CommOp::Send { to, .. } => self.require_member("to", *to, size)?,
            CommOp::Recv { from, .. } => self.require_member("from", *from, size)?,
        }
        Ok(())
    }

    /// Refuses reductions of integers, and of f64 by a device.
    fn require_float(&self) -> CheckResult {
        match self.dtype {
            Some(DType::U32) => Err(self.refuse("reductions take f32, bf16 or f64, not u32")),
            Some(DType::F64) if self.on_device => {
                Err(self.refuse("reductions of f64 take host memory, not device memory"))
            }
            Some(DType::F32 | DType::Bf16 | DType::F64) | None => Ok(()),
        }
    }

    fn require_len(&self, name: &str, len: usize, expected: usize) -> CheckResult {
        if len == expected {
            return Ok(());
        }
        Err(self.refuse(format!("{name} has {len} elements where {expected} are expected")))
    }

    /// Requires that both operands, if there are two, have one dtype and are in host memory both, or in device memory
    /// both.
    fn require_alike(&self, src: Option<View<'_>>, dst: Option<View<'_>>) -> CheckResult {
        let Some((src, dst)) = src.zip(dst) else { return Ok(()) };
        let memory = |view: View<'_>| if view.device().is_some() { "device" } else { "host" };
        if src.dtype() != dst.dtype() {
            let (src, dst) = (src.dtype(), dst.dtype());
            return Err(
                self.refuse(format!("src is {src} and dst is {dst}; they must be the same"))
            );
        }
        if memory(src) != memory(dst) {
            return Err(self.refuse(format!(
                "src is in {} memory and dst is in {} memory; they must be in the same",
                memory(src),
                memory(dst)
            )));
        }
        Ok(())
    }

    /// Requires a member of a group of `size` members.
    fn require_member(&self, name: &str, peer: Peer, size: usize) -> CheckResult {
        let member = peer.group_rank;
        if member < size {
            return Ok(());
        }
        let last = size - 1;
        Err(self.refuse(format!("`{name}` is {member}, but the group has the members 0 to {last}")))
    }

    /// Requires one entry for each of `size` members.
    fn require_counts(&self, name: &str, counts: &[usize], size: usize) -> CheckResult {
        if counts.len() == size {
            return Ok(());
        }
        Err(self.refuse(format!(
            "`{name}` has {} entries, but the group has {size} members; give one entry per member",
            counts.len()
        )))
    }

    /// Checks the arguments of a collective in place, on `len` elements.
    fn require_row(&self, len: usize, blocks: &Blocks, size: usize) -> CheckResult {
        self.require_counts("blocks", &blocks.lens, size)?;
        self.require_len("data", len, blocks.total())?;
        if blocks.outer == 1 {
            return Ok(());
        }
        Err(self.refuse(format!(
            "`blocks` has {} rows, but a collective in place takes one; use the form with `src` and `dst`",
            blocks.outer
        )))
    }

    /// Checks a scatter or gather: this rank's part has its count, and only the root passes the whole of all parts.
    fn require_rooted(&self, member: &GroupMember, rooted: Rooted<'_>) -> CheckResult {
        let Rooted { root, counts, part, whole } = rooted;
        self.require_member("root", root, member.size())?;
        self.require_counts("counts", counts, member.size())?;
        self.require_len(part.name, len(part.view), counts[member.group_rank()])?;
        match (whole.view, root.group_rank == member.group_rank()) {
            (None, true) => {
                Err(self.refuse(format!("this rank is the root and must pass {}", whole.name)))
            }
            (Some(_), false) => {
                Err(self.refuse(format!("only the root passes {}; pass None here", whole.name)))
            }
            (Some(view), true) => self.require_len(whole.name, view.len(), counts.iter().sum()),
            (None, false) => Ok(()),
        }
    }
}

/// The arguments of a scatter or gather.
struct Rooted<'a> {
    root: Peer,
    counts: &'a [usize],
    /// The part of this rank.
    part: Operand<'a>,
    /// All parts, which only the root passes.
    whole: Operand<'a>,
}

/// An argument, by its name in messages.
struct Operand<'a> {
    name: &'static str,
    view: Option<View<'a>>,
}

fn len(view: Option<View<'_>>) -> usize {
    view.map_or(0, |view| view.len())
}

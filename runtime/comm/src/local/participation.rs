//! A member's part in a collective, from the rendezvous until its memory is its own again.

use std::sync::Arc;

use crate::CommError;
use crate::call::Call;
use crate::timeline::DeviceSpan;

use super::device_stream::DeviceStream;
use super::group_status::GroupStatus;
use super::operand::MemberOperand;
use super::rendezvous::{Contribution, Participant, Rendezvous, RendezvousChannel};

/// A member's part in a collective. When it is finished or dropped, also while unwinding, the member is done with the
/// others' memory and waits until the others are done with the memory that it has lent.
pub struct Participation<'a> {
    channel: &'a RendezvousChannel,
    rendezvous: Arc<Rendezvous>,
    /// Set if this member has lent memory.
    lends_memory: bool,
    is_finished: bool,
    participant: Participant<'a>,
    /// The span of the call on the stream of the device, if that is traced.
    span: Option<DeviceSpan>,
}

impl<'a> Participation<'a> {
    /// Waits until all members have contributed, and compares their calls.
    pub fn begin_call(
        channel: &'a RendezvousChannel,
        group: &GroupStatus,
        contribution: Contribution,
        participant: Participant<'a>,
    ) -> Result<Self, CommError> {
        let lends_memory = contribution.operand.lent_memory().is_some();
        let rendezvous = channel.join_rendezvous(group, contribution, &participant)?;
        let (is_finished, span) = (false, None);
        Ok(Participation { channel, rendezvous, lends_memory, is_finished, participant, span })
    }

    /// The stream of this member, if operands are in device memory.
    pub fn stream(&self) -> Option<&DeviceStream> {
        self.participant.stream.as_ref()
    }

    /// The operand of `member`.
    pub fn operand(&self, member: usize) -> &MemberOperand {
        &self.rendezvous.contributions[member].operand
    }

    /// The operands of all members.
    pub fn operands(&self) -> impl Iterator<Item = &MemberOperand> {
        self.rendezvous.contributions.iter().map(|contribution| &contribution.operand)
    }

    /// The call of `member`.
    pub fn call(&self, member: usize) -> &Call {
        &self.rendezvous.contributions[member].call
    }

    /// Orders the work of this member's stream after the operands of all members are ready.
    pub fn wait_for_operands(&mut self) {
        let Some(stream) = self.participant.stream.as_ref() else { return };
        stream.wait_for_own_operands();
        let others = self.rendezvous.contributions.iter().enumerate();
        let others = others.filter(|(member, _)| *member != self.participant.group_rank);
        others
            .filter_map(|(_, contribution)| contribution.ready.as_ref())
            .for_each(|ready| stream.wait_for(ready));
        self.span = self.participant.accounting.open_span(stream.stream);
    }

    /// Finishes the part of this member. If it has lent device memory, its stream waits for the work of the others.
    pub fn finish_call(mut self) {
        let Some(stream) = self.participant.stream.clone() else { return };
        let own = self.participant.group_rank;
        if self.rendezvous.has_lent_memory {
            self.rendezvous.ends[own].get_or_init(|| stream.record_event());
        }
        self.finish_on_host();
        if self.lends_memory {
            let others = self.rendezvous.ends.iter().enumerate();
            let others = others.filter(|(member, _)| *member != own);
            // A member that failed has none; its device does no more work.
            others.filter_map(|(_, end)| end.get()).for_each(|end| stream.wait_for(end));
        }
        self.participant.accounting.close_span(self.span.take(), self.participant.call);
    }

    fn finish_on_host(&mut self) {
        let was_finished = std::mem::replace(&mut self.is_finished, true);
        if was_finished || !self.rendezvous.has_lent_memory {
            return;
        }
        if let Some(start) = self.channel.finish_rendezvous(&self.rendezvous, self.lends_memory) {
            self.participant.add_blocked_since(start);
        }
    }
}

impl Drop for Participation<'_> {
    fn drop(&mut self) {
        self.finish_on_host();
        let Participant { group_rank, call, accounting, .. } = &self.participant;
        accounting.finish_transfer(call, self.rendezvous.transfer_start(*group_rank));
    }
}

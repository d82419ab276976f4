//! One rank in one process group: the path of its collectives.

use std::sync::Arc;

use crate::accounting::Accounting;
use crate::call::Call;
use crate::{CommError, GroupMember};
use meshwright_backend::{Device, DeviceEvent, View};

use super::device_stream::DeviceStream;
use super::operand::MemberOperand;
use super::participation::Participation;
use super::rendezvous::{Contribution, Participant};
use super::shared_group::SharedGroup;

/// One rank in one process group.
pub struct LocalMember {
    pub group: Arc<SharedGroup>,
    pub membership: Arc<GroupMember>,
}

/// A call that the engine is processing.
#[derive(Clone, Copy)]
pub struct IssuedCall<'a> {
    pub call: &'a Arc<Call>,
    /// Event after which the operands of an asynchronous call in device memory may be used.
    pub ready: Option<&'a DeviceEvent>,
}

pub type CallResult = Result<(), CommError>;

impl LocalMember {
    pub fn size(&self) -> usize {
        self.membership.size()
    }

    pub fn group_rank(&self) -> usize {
        self.membership.group_rank()
    }

    pub fn world_rank(&self) -> usize {
        self.membership.world_rank()
    }

    pub fn accounting(&self) -> &Arc<Accounting> {
        &self.membership.accounting
    }

    /// Notes `call` as the last call of the rank, for error messages.
    pub fn note_call(&self, call: &Arc<Call>) {
        self.group.ranks().note_call(self.world_rank(), call);
    }

    /// The stream of `call` on `device`, with operands that are ready at an event.
    pub fn device_stream(
        &self,
        call: &Call,
        device: &Arc<dyn Device>,
        ready: Option<&DeviceEvent>,
    ) -> DeviceStream {
        if call.asynchronous {
            DeviceStream::communication(device, self.group.axes().number(), ready.cloned())
        } else {
            DeviceStream::compute(device)
        }
    }

    /// Participates in a collective by `transfer`, which works on the operands of all members. `data` is one of this
    /// member's operands.
    pub fn participate(
        &self,
        IssuedCall { call, ready }: IssuedCall<'_>,
        data: Option<View<'_>>,
        operand: MemberOperand,
        transfer: impl FnOnce(&Participation<'_>),
    ) -> CallResult {
        self.note_call(call);
        let accounting = self.accounting();
        let (channel, clock) = if call.asynchronous {
            (&self.group.asynchronous, Some(Arc::clone(&accounting.clock)))
        } else {
            (&self.group.blocking, None)
        };
        let device = data.and_then(|data| data.device());
        let stream = device.map(|device| self.device_stream(call, device, ready));
        let ready = stream.as_ref().map(|stream| stream.ready.clone());
        let contribution = Contribution { call: Arc::clone(call), operand, ready, clock };
        let group_rank = self.group_rank();
        let participant = Participant { group_rank, call, accounting, stream };
        let begin =
            |status: &_| Participation::begin_call(channel, status, contribution, participant);
        let mut participation = self.group.run_step(begin)?;
        participation.wait_for_operands();
        transfer(&participation);
        participation.finish_call();
        Ok(())
    }
}

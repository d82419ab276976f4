//! Submission of calls to streams: their steps, the order with the compute stream, and the memory in use meanwhile.

use std::sync::Arc;

use crate::nccl::api::{CommStream, Transfer, in_group};
use crate::nccl::plan::{CollectiveMemory, Step};
use crate::nccl::rank_resources::RankResources;
use crate::{Call, CommError};
use meshwright_backend::{Buffer, DType, DeviceEvent, StreamKind};

use super::{CallResult, NcclGroup};

/// A submitted collective.
pub(super) struct Submitted {
    /// The event at its end.
    pub end: DeviceEvent,
    /// Scratch memory that is in use until then.
    pub scratch: Option<Arc<Buffer>>,
}

impl NcclGroup {
    /// Submits a collective on device memory after the work of the compute stream so far.
    pub(super) fn submit(
        &self,
        call: &Arc<Call>,
        memory: CollectiveMemory,
    ) -> Result<Submitted, CommError> {
        let RankResources { watchdog, .. } = &*self.resources;
        watchdog.check_failure()?;
        let start = self.accounting().start_transfer();
        let (text, dtype) = (call.to_string(), call.dtype.unwrap_or(DType::F32));
        let _submitting = watchdog.begin_submission(&text);
        let stream = StreamKind::Communication(call.axes.number());
        let planner = self.planner(dtype);
        let len = planner.scratch_len(&call.op);
        let new_scratch =
            || self.resources.scratch.get(stream, self.resources.allocator(), dtype, len);
        let scratch = (len > 0).then(new_scratch);
        let scratch_address = scratch.as_ref().map_or(0, |copy| copy.view().address() as u64);
        self.resources.begin_call(stream);
        let span = self.accounting().open_span(stream);
        for step in planner.steps(&call.op, memory, scratch_address) {
            self.submit_step(&text, (stream, dtype), step)?;
        }
        self.accounting().close_span(span, call);
        let end = self.resources.end_call(stream);
        watchdog.watch_call(text, end.clone(), None);
        self.accounting().finish_transfer(call, start);
        Ok(Submitted { end, scratch })
    }

    /// Submits one step of the call that `text` describes.
    fn submit_step(
        &self,
        text: &str,
        (stream, dtype): (StreamKind, DType),
        step: Step,
    ) -> CallResult {
        let RankResources { device, registrations, .. } = &*self.resources;
        match step {
            // SAFETY: all ranges lie inside operands of the call, which are this stream's until its end.
            Step::Copy { bytes, dst, src } => unsafe {
                device.copy(stream, dst as *mut u8, src as *const u8, bytes);
            },
            // SAFETY: as above.
            Step::Join { rows, whole, parts } => unsafe {
                device.join_rows(stream, rows, whole as *mut u8, &parts);
            },
            // SAFETY: as above.
            Step::Split { rows, whole, parts } => unsafe {
                device.split_rows(stream, rows, whole as *const u8, &parts);
            },
            Step::Group(transfers) => {
                let closed = CommError::Closed { rank: self.member.world_rank() };
                let comm = self.comm.ok_or(closed)?;
                // The library itself registers the memory of captured calls.
                if let Some(registrations) = registrations
                    && !device.is_capturing()
                {
                    let ranks = self.member.size();
                    let memory = transfers.iter().flat_map(|next| next.memory(ranks, dtype));
                    memory
                        .flatten()
                        .try_for_each(|used| registrations.note_use(comm, text, used))?;
                }
                let stream = CommStream { comm, stream: device.stream_handle(stream) };
                let transfers: Vec<_> =
                    transfers.into_iter().map(|transfer| (dtype, transfer)).collect();
                self.submit_transfers(text, stream, &transfers)?;
            }
        }
        Ok(())
    }

    /// Submits one transfer, or several as a group.
    pub(in crate::nccl) fn submit_transfers(
        &self,
        call: &str,
        stream: CommStream,
        transfers: &[(DType, Transfer)],
    ) -> CallResult {
        let watchdog = &self.resources.watchdog;
        watchdog.with_library(call, |library| {
            in_group(library, || {
                transfers.iter().try_for_each(|(dtype, transfer)| {
                    // SAFETY: the addresses lie inside operands of the call, which are this stream's until its end.
                    unsafe { library.submit(stream, *dtype, transfer) }
                })
            })
        })?;
        watchdog.wait_until_ready(stream.comm, call)
    }
}

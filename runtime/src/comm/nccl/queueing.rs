//! How calls are queued: their steps, the order with the queue of the model, and the memory that they use meanwhile.

use std::sync::Arc;

use crate::backend::{Buffer, Category, DType, Moment, Queue, View, ViewMut};
use crate::comm::busy::Busy;
use crate::comm::{CommError, Communicator, Pending, Site};

use super::api::{On, Transfer};
use super::communicator::{NcclCommunicator, Outcome};
use super::engine::Core;
use super::plan::Step;
use super::work::Work;

impl NcclCommunicator {
    /// Queues a transfer, or several that begin together.
    pub(super) fn queue_group(
        &self,
        call: &str,
        on: On,
        dtype: DType,
        transfers: &[Transfer],
    ) -> Outcome {
        let watch = &self.core.watch;
        watch.using(call, |library| {
            library.begin_group()?;
            for transfer in transfers {
                // SAFETY: the addresses lie inside operands of the call, which are this queue's until its end.
                unsafe { library.queue(on, dtype, transfer)? };
            }
            library.end_group()
        })?;
        watch.settle(on.comm, call)
    }

    /// Queues a call on operands in memory of the device, after what the model has queued so far. Gives when it is done;
    /// `held` is in use until then.
    fn queue_work(
        &self,
        work: Work,
        (src, dst): (u64, u64),
        held: Option<Arc<Buffer>>,
    ) -> Result<Moment, CommError> {
        let Work { call, aside, steps } = work;
        let Core { device, watch, meter, .. } = &*self.core;
        watch.check()?;
        let begin = self.account.begin();
        let bytes = call.op.sent(call.dtype, self.member, self.members());
        self.account.count(bytes);
        let (text, dtype) = (call.to_string(), call.dtype.unwrap_or(DType::F32));
        let _queueing = watch.queueing(&text);
        let queue = Queue::Communication(self.axes().number());
        let aside =
            (aside > 0).then(|| Arc::new(meter.alloc(dtype, aside, Category::Communication)));
        let room = aside.as_ref().map_or(0, |aside| aside.view().address() as u64);
        device.wait_for(queue, &device.mark(Queue::Compute));
        let span = self.account.open(queue);
        for step in steps(&self.planner(dtype), src, dst, room) {
            match step {
                // SAFETY: what is read and written lies inside operands of the call, which are this queue's until its end.
                Step::Copy { bytes, dst, src } => unsafe {
                    device.copy(queue, dst as *mut u8, src as *const u8, bytes);
                },
                // SAFETY: as above.
                Step::Join { rows, whole, parts } => unsafe {
                    device.join_rows(queue, rows, whole as *mut u8, &parts);
                },
                // SAFETY: as above.
                Step::Split { rows, whole, parts } => unsafe {
                    device.split_rows(queue, rows, whole as *const u8, &parts);
                },
                Step::Group(transfers) => {
                    let comm = self.comm.ok_or(CommError::Closed { rank: self.own_rank() })?;
                    let on = On { comm, stream: device.handle(queue) };
                    // Of calls that are recorded the library registers the memory by itself.
                    let registry = self.core.registry.as_ref().filter(|_| !device.is_capturing());
                    if let Some(registry) = registry {
                        let ranks = self.members().len();
                        let memory = transfers.iter().flat_map(|next| next.memory(ranks, dtype));
                        memory.flatten().try_for_each(|used| registry.used(comm, &text, used))?;
                    }
                    self.queue_group(&text, on, dtype, &transfers)?;
                }
            }
        }
        self.account.close(span, &call, bytes);
        let end = device.mark(queue);
        for held in [aside, held].into_iter().flatten() {
            watch.queued(text.clone(), end.clone(), Some(held));
        }
        watch.queued(text, end.clone(), None);
        self.account.transferred(&call, bytes, begin);
        Ok(end)
    }

    /// A call that the model waits for. Of operands on the host, copies on the device are used.
    pub(super) fn complete(
        &self,
        work: Result<Work, CommError>,
        src: Option<View<'_>>,
        mut dst: Option<ViewMut<'_>>,
    ) -> Outcome {
        let work = work?;
        let Core { device, watch, meter, .. } = &*self.core;
        let _inside = self.account.enter(work.call.op.name(), &work.call.site.clone());
        let address = |view: Option<View<'_>>| view.map_or(0, |view| view.address() as u64);
        if work.call.on_device {
            let dst = dst.as_ref().map(ViewMut::as_view);
            let site = work.call.site.clone();
            let end = self.queue_work(work, (address(src), address(dst)), None)?;
            self.account.model_waits(&site, || device.wait_for(Queue::Compute, &end));
            return Ok(());
        }
        let copy_of = |view: View<'_>| {
            let mut copy = meter.alloc(view.dtype(), view.len(), Category::Communication);
            if !view.is_empty() {
                // SAFETY: the copy has room for the elements, and is exclusive.
                unsafe { device.upload(copy.view_mut().address(), view.bytes()) };
            }
            copy
        };
        let src = src.map(copy_of);
        let staged = dst.as_ref().map(|dst| copy_of(dst.as_view()));
        let addresses = [&src, &staged].map(|copy| address(copy.as_ref().map(Buffer::view)));
        let end = self.queue_work(work, addresses.into(), None)?;
        device.wait_for(Queue::Compute, &end);
        // Not by a wait of the device's library, which would not notice that the call has failed.
        watch.wait(&end)?;
        if let (Some(dst), Some(staged)) = (&mut dst, staged)
            && !dst.is_empty()
        {
            // SAFETY: `staged` holds as many elements.
            unsafe { device.download(staged.view().address(), dst.bytes_mut()) };
        }
        Ok(())
    }

    /// A call beside the model, whose `value` holds what `dst` gives. With operands on the host it is complete at once.
    pub(super) fn start<T>(
        &self,
        work: Result<Work, CommError>,
        src: Option<Arc<Buffer>>,
        mut value: T,
        dst: impl FnOnce(&mut T) -> Option<ViewMut<'_>>,
    ) -> Pending<T> {
        let site = match &work {
            Ok(work) => work.call.site.clone(),
            Err(_) => Site::new("a call that was refused"),
        };
        let source = src.as_ref().map(|src| src.view());
        let on_device = work.as_ref().is_ok_and(|work| work.call.on_device);
        let outcome = match on_device {
            false => self.complete(work, source, dst(&mut value)).map(|()| None),
            true => {
                let dst = dst(&mut value).map_or(0, |dst| dst.address() as u64);
                let src = source.map_or(0, |src| src.address() as u64);
                work.and_then(|work| self.queue_work(work, (src, dst), None)).map(Some)
            }
        };
        let held = src.clone();
        self.pending(&site, value, outcome, held)
    }

    /// The handle of a call that is complete, or will be at a moment; `held` is in use until then.
    pub(super) fn pending<T>(
        &self,
        site: &Site,
        value: T,
        outcome: Result<Option<Moment>, CommError>,
        held: Option<Arc<Buffer>>,
    ) -> Pending<T> {
        let Core { device, activity, .. } = &*self.core;
        let (promise, pending) = Pending::new(self.own_rank(), &self.account, activity, site);
        promise.keep(outcome.map(|end| Busy::until(value, Some(device), end).holding(held)));
        pending
    }
}

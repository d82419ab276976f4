//! Work of a device that is recorded once and then done again and again, with the memory that it uses.
//!
//! Addresses are part of what is recorded. So memory that is handed out, or comes back, while work is recorded is
//! [reserved](super::MemoryMeter::reserve): nothing but other recordings of the same [`Recordings`] get it, until all of
//! them are gone.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::meter::Reserve;
use super::{Buffer, Device, DeviceFailure, Element, MemoryMeter, Queue, View};

/// Recorded work, as a device keeps it.
///
/// # Safety
/// Whoever calls [`submit`](Self::submit) promises for all memory that was used while recording what was promised then.
pub unsafe trait RecordedWork: Send + Sync + Debug {
    /// Queues all of it, after what was queued so far in any queue, and before what is queued in the compute queue next.
    ///
    /// # Safety
    /// See [`RecordedWork`].
    unsafe fn submit(&self);
}

/// Recordings of one rank that are done one after the other, and share the memory that they reserve.
#[derive(Debug)]
pub struct Recordings {
    device: Arc<dyn Device>,
    reserves: Vec<Reserve>,
}

impl Recordings {
    /// None yet. What is recorded draws memory from `meters`.
    pub fn new(device: &Arc<dyn Device>, meters: &[Arc<MemoryMeter>]) -> Arc<Recordings> {
        let reserves = meters.iter().map(MemoryMeter::reserve).collect();
        Arc::new(Recordings { device: Arc::clone(device), reserves })
    }

    /// Whether recordings can still be done again: no meter has needed their memory for something else.
    pub fn are_whole(&self) -> bool {
        self.reserves.iter().all(Reserve::is_whole)
    }

    /// Records what `work` queues, instead of doing it. `prepare` comes before, and is done: what it makes may be used by
    /// the recorded work, and is reserved too.
    ///
    /// # Errors
    /// Where the device does not record, and why; then nothing of `work` was done.
    pub fn record<P, T>(
        self: &Arc<Self>,
        prepare: impl FnOnce() -> P,
        work: impl FnOnce(P) -> T,
    ) -> Result<(T, Recording), String> {
        let _open = Open::of(&self.reserves);
        let prepared = prepare();
        self.device.begin_recording()?;
        match catch_unwind(AssertUnwindSafe(|| work(prepared))) {
            Ok(result) => {
                let work = self.device.end_recording()?;
                Ok((result, Recording { work, memory: Arc::clone(self) }))
            }
            Err(payload) => {
                // The failure of the work says more than another one of the recording that it has cut off.
                drop(self.device.end_recording());
                match payload.downcast::<DeviceFailure>() {
                    Ok(failure) => DeviceFailure(format!(
                        "{} (while a step was recorded, to be done again at once; --no-graphs runs without)",
                        failure.0
                    ))
                    .unwind(),
                    Err(payload) => resume_unwind(payload),
                }
            }
        }
    }

    /// The place of `data`, which is used by recorded work: called while that is recorded, or prepared.
    pub fn place_of(self: &Arc<Self>, data: View<'_>) -> Place {
        Place { address: data.address() as usize, bytes: data.byte_len(), memory: Arc::clone(self) }
    }
}

/// Reserves are open as long as this is there.
struct Open<'a>(&'a [Reserve]);

impl<'a> Open<'a> {
    fn of(reserves: &'a [Reserve]) -> Open<'a> {
        reserves.iter().for_each(Reserve::open);
        Open(reserves)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Reserve::close);
    }
}

/// Recorded work, and the memory that it uses.
#[derive(Debug)]
pub struct Recording {
    // Given back before the memory.
    work: Box<dyn RecordedWork>,
    memory: Arc<Recordings>,
}

impl Recording {
    /// Does all of it once more, after what was queued so far.
    ///
    /// # Panics
    /// When the memory is [no longer whole](Recordings::are_whole): a fault of the calling code.
    pub fn replay(&self) {
        assert!(self.memory.are_whole(), "a recording is done again with the memory that it uses");
        // SAFETY: all memory that was in use while recording is still reserved, or was never given back; queues are in
        // order, as when it was recorded.
        unsafe { self.work.submit() };
    }
}

/// Memory that recorded work reads or writes, to be filled before and read after each replay.
#[derive(Debug)]
pub struct Place {
    address: usize,
    bytes: usize,
    memory: Arc<Recordings>,
}

impl Place {
    /// Where it begins.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Fills it with values of the host, for what is queued next.
    ///
    /// # Panics
    /// When there is no room for exactly these values: a fault of the calling code.
    pub fn write<T: Element>(&self, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.require(bytes.len());
        // SAFETY: the memory is reserved as long as `memory` is there, and recorded work that uses it is queued in order.
        unsafe { self.memory.device.upload(self.address as *mut u8, bytes) };
    }

    /// Fills it from memory of the device.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn copy_from(&self, data: View<'_>) {
        self.require(data.byte_len());
        let (device, to) = (&self.memory.device, self.address as *mut u8);
        // SAFETY: as in `write`; the view lies in other memory, since this is reserved.
        unsafe { device.copy(Queue::Compute, to, data.address(), self.bytes) };
    }

    /// Copies what it holds after what was queued so far.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn copy_to(&self, buffer: &mut Buffer) {
        let to = buffer.view_mut();
        self.require(to.byte_len());
        let (device, from) = (&self.memory.device, self.address as *const u8);
        // SAFETY: as in `copy_from`.
        unsafe { device.copy(Queue::Compute, to.address(), from, self.bytes) };
    }

    fn require(&self, bytes: usize) {
        assert!(
            bytes == self.bytes && self.memory.are_whole(),
            "a place of a recording is used as it was recorded"
        );
    }
}

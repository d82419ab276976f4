//! Memory that the host does not touch itself.

use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::recording::RecordedWork;
use super::{DType, MemoryMeter, ReduceOp};

/// The memory of an accelerator, and the queues of work on it, as one rank uses them.
///
/// Pointers are device addresses, which the host never follows. Work is queued, not done, when a method returns, but for
/// [`download`](Self::download) and [`synchronize`](Self::synchronize). A device that fails unwinds the rank with a
/// [`DeviceFailure`].
///
/// # Safety
/// Callers of the unsafe methods promise that the addresses lie in live memory of the device with room for what is
/// asked, and that work on different queues is ordered by [`Moment`]s wherever it uses the same memory.
pub trait Device: Send + Sync + Debug {
    /// `bytes` bytes, at least one; nothing where the device has no more.
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>>;
    /// Bytes of device memory that kernels and libraries have taken for themselves, for this rank, beside what was
    /// [allocated](Self::alloc).
    fn own_bytes(&self) -> usize {
        0
    }
    /// When kernels and libraries find no memory, `meter` gives back what it keeps for later.
    fn relieved_by(&self, meter: Weak<MemoryMeter>) {
        // A device that takes none by itself is never short of it.
        let _ = meter;
    }
    /// Gives memory back, once every queue of the rank is done with what was queued so far.
    ///
    /// # Safety
    /// `memory` came from [`alloc`](Self::alloc) with these `bytes`.
    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize);

    /// `bytes` bytes of page-locked host memory, at least one, from which and to which the device copies by itself;
    /// nothing where the host has no more.
    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>>;
    /// Gives page-locked memory back, as [`free`](Self::free).
    ///
    /// # Safety
    /// `memory` came from [`alloc_page_locked`](Self::alloc_page_locked) with these `bytes`.
    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize);
    /// Queues a copy from the device to page-locked memory, in [`Queue::Transfer`].
    ///
    /// # Safety
    /// See [`Device`]; `dst` is not read before the queue has passed, and both stay in place until then.
    unsafe fn copy_out(&self, dst: &mut [u8], src: *const u8);
    /// Queues a copy from page-locked memory to the device, in [`Queue::Transfer`].
    ///
    /// # Safety
    /// As [`copy_out`](Self::copy_out).
    unsafe fn copy_in(&self, dst: *mut u8, src: &[u8]);

    /// Copies host memory to the device, in the order of [`Queue::Compute`]; `src` is free for other uses on return.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn upload(&self, dst: *mut u8, src: &[u8]);
    /// Copies device memory to the host, in the order of [`Queue::Compute`], and waits for it.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn download(&self, src: *const u8, dst: &mut [u8]);
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn zero(&self, queue: Queue, dst: *mut u8, bytes: usize);
    /// Copies device memory; the two do not overlap.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn copy(&self, queue: Queue, dst: *mut u8, src: *const u8, bytes: usize);
    /// Combines `len` elements of every source, f32 or bf16, in the order of sources, and writes the result, which is
    /// rounded once. `dst` may be one of the sources.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn combine(
        &self,
        queue: Queue,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    );

    /// Puts `rows` rows together: each row of `whole` is the rows of all parts with its number, in the order of the parts.
    ///
    /// # Safety
    /// See [`Device`]; no part overlaps `whole`.
    unsafe fn join_rows(&self, queue: Queue, rows: usize, whole: *mut u8, parts: &[RowPart]) {
        for_each_run(rows, parts, |at, part, bytes| {
            // SAFETY: as the caller promises.
            unsafe { self.copy(queue, whole.wrapping_add(at), part as *const u8, bytes) }
        });
    }
    /// Takes `rows` rows apart: [`join_rows`](Self::join_rows) the other way.
    ///
    /// # Safety
    /// As [`join_rows`](Self::join_rows).
    unsafe fn split_rows(&self, queue: Queue, rows: usize, whole: *const u8, parts: &[RowPart]) {
        for_each_run(rows, parts, |at, part, bytes| {
            // SAFETY: as the caller promises.
            unsafe { self.copy(queue, part as *mut u8, whole.wrapping_add(at), bytes) }
        });
    }
    /// [`combine`](Self::combine), of runs of every source: from where its address says on, and at equal distances.
    ///
    /// # Safety
    /// See [`Device`]; `dst` is none of the sources.
    unsafe fn combine_runs(
        &self,
        queue: Queue,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        runs: &Runs,
    ) {
        for run in 0..runs.count {
            let (from, to) = (run * runs.distance * dtype.bytes(), run * runs.len * dtype.bytes());
            let srcs: Vec<_> = srcs.iter().map(|src| src.wrapping_add(from)).collect();
            // SAFETY: as the caller promises.
            unsafe { self.combine(queue, op, dtype, dst.wrapping_add(to), &srcs, runs.len) };
        }
    }

    /// The point that `queue` has reached when it has done what was submitted so far.
    fn mark(&self, queue: Queue) -> Moment;
    /// `queue` does nothing more before `moment`, which may be of another rank on the same device.
    fn wait_for(&self, queue: Queue, moment: &Moment);
    /// As [`mark`](Self::mark), a moment whose time can be asked for when it has come.
    fn mark_timed(&self, queue: Queue) -> Moment;
    /// Milliseconds between two timed moments of this rank, both of which have come; negative where `to` came first.
    fn elapsed_ms(&self, from: &Moment, to: &Moment) -> f32;
    /// Whether `moment` has come.
    fn is_done(&self, moment: &Moment) -> bool;
    /// What other libraries of the device's maker call `queue`, to queue work of their own in it.
    fn handle(&self, queue: Queue) -> u64;
    /// The host waits for `moment`.
    fn synchronize(&self, moment: &Moment);

    /// Tells `observer`, as long as it lives, of memory that is about to be given back. Gives whether it does: a device need
    /// not know how.
    fn observe_frees(&self, _observer: Weak<dyn FreeObserver>) -> bool {
        false
    }

    /// What is queued from now on is recorded instead of done, after all work so far is done. Until the end of the
    /// recording the host neither reads memory of the device nor waits for it; queues may be used that were used before.
    ///
    /// # Errors
    /// Where the device does not record, and why.
    fn begin_recording(&self) -> Result<(), String> {
        Err("this device records nothing".to_owned())
    }

    /// Ends a recording, after what was recorded in every queue.
    ///
    /// # Errors
    /// Where nothing came of it, and why.
    fn end_recording(&self) -> Result<Box<dyn RecordedWork>, String> {
        Err("this device records nothing".to_owned())
    }

    /// Whether what is queued is recorded.
    fn is_recording(&self) -> bool {
        false
    }

    /// How often the host has read memory of the device, or waited for a moment of it, so far.
    fn waits(&self) -> u64 {
        0
    }
}

/// Who has to let go of memory before its device takes it back.
pub trait FreeObserver: Send + Sync {
    /// The device is done with everything that used these bytes, and takes them back when this returns.
    fn before_free(&self, address: u64, bytes: usize);
}

/// A part of every row of a tensor, with the parts of all rows one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPart {
    /// Where it begins.
    pub address: u64,
    /// Bytes of one row.
    pub bytes: usize,
}

/// Runs of elements at equal distances, which become one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// How many.
    pub count: usize,
    /// Elements of each.
    pub len: usize,
    /// Elements from the beginning of one to that of the next.
    pub distance: usize,
}

/// Calls `f` for every row of every part that is not empty: with where it lies in the whole, in bytes, and at which address
/// by itself.
fn for_each_run(rows: usize, parts: &[RowPart], mut f: impl FnMut(usize, u64, usize)) {
    let width: usize = parts.iter().map(|part| part.bytes).sum();
    let mut start = 0;
    for part in parts.iter().filter(|part| part.bytes > 0) {
        for row in 0..rows {
            f(row * width + start, part.address + (row * part.bytes) as u64, part.bytes);
        }
        start += part.bytes;
    }
}

/// Queues of one rank; the work of each is done in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Kernels of the model.
    Compute,
    /// Communication, in one queue for each number: groups of ranks take a number each.
    Communication(usize),
    /// Transfers between host and device that run beside the model.
    Transfer,
    /// No work, but what the host itself waits for.
    Waiting,
}

/// A point in the work of a device.
#[derive(Clone)]
pub struct Moment(pub Arc<dyn Any + Send + Sync>);

impl Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moment")
    }
}

/// A device did not do what it was asked for.
///
/// Model code returns tensors, not `Result`s, so this is also the payload by which the failure passes up to whoever runs
/// the rank; [`launch`](crate::comm::launch) makes an error of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device failure: {0}")]
pub struct DeviceFailure(pub String);

impl DeviceFailure {
    /// Unwinds the rank, without a panic message.
    pub fn unwind(self) -> ! {
        std::panic::resume_unwind(Box::new(self))
    }
}

//! Memory that the host does not touch itself.

use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

use super::recording::RecordedWork;
use super::{DType, ReduceOp};

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

    /// The point that `queue` has reached when it has done what was submitted so far.
    fn mark(&self, queue: Queue) -> Moment;
    /// `queue` does nothing more before `moment`, which may be of another rank on the same device.
    fn wait_for(&self, queue: Queue, moment: &Moment);
    /// Whether `moment` has come.
    fn is_done(&self, moment: &Moment) -> bool;
    /// What other libraries of the device's maker call `queue`, to queue work of their own in it.
    fn handle(&self, queue: Queue) -> u64;
    /// The host waits for `moment`.
    fn synchronize(&self, moment: &Moment);

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

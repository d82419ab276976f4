//! Memory of a device, and host memory that it reads by itself.
//!
//! Memory is allocated for good, not in the order of a stream: buffers come from a pool of their own
//! ([`MemoryMeter`](crate::backend::MemoryMeter)), which asks for memory when it first needs it and keeps it. A second
//! pool below that one, the driver's, would only hide what is in use.

use std::ffi::c_void;
use std::sync::Mutex;

use cudarc::driver::sys::{CUdeviceptr, CUresult};

use super::context::{Context, call};
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::{DriverError, Stream};

/// Bytes of device memory that nobody uses.
pub fn unused(context: &Context) -> Result<usize, DriverError> {
    let (mut unused, mut all) = (0, 0);
    // SAFETY: it writes two numbers.
    unsafe { call!(context.api, cuMemGetInfo_v2(&mut unused, &mut all)) }?;
    Ok(unused)
}

/// Device memory.
pub fn alloc(context: &Context, bytes: usize) -> Result<u64, DriverError> {
    let mut address: CUdeviceptr = 0;
    // SAFETY: it writes the address.
    let result = unsafe { (context.api.cuMemAlloc_v2)(&mut address, bytes.max(1)) };
    if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Err(DriverError::OutOfMemory { bytes });
    }
    context.api.check("cuMemAlloc", result).map(|()| address)
}

/// Gives device memory back.
///
/// # Safety
/// It came from [`alloc`], and nothing uses it any more.
pub unsafe fn free(context: &Context, address: u64) -> Result<(), DriverError> {
    // SAFETY: as the caller promises.
    unsafe { call!(context.api, cuMemFree_v2(address)) }
}

/// Bytes of libraries by the stream whose work uses them: ranks that share a device each count their own.
#[derive(Default)]
pub struct ScratchAccount(Mutex<Vec<(Stream, usize)>>);

impl ScratchAccount {
    /// Those of all these streams.
    pub fn bytes(&self, streams: &[Stream]) -> usize {
        let account = lock(&self.0);
        let entries = account.iter().filter(|(stream, _)| streams.contains(stream));
        entries.map(|(_, bytes)| bytes).sum()
    }

    fn add(&self, stream: Stream, bytes: usize) {
        lock(&self.0).push((stream, bytes));
    }

    fn remove(&self, stream: Stream, bytes: usize) {
        let mut account = lock(&self.0);
        if let Some(index) = account.iter().position(|entry| *entry == (stream, bytes)) {
            account.swap_remove(index);
        }
    }
}

/// Device memory for a library's work on a stream, which is counted.
pub fn alloc_scratch(context: &Context, stream: Stream, bytes: usize) -> Result<u64, DriverError> {
    let address = alloc(context, bytes)?;
    context.scratch.add(stream, bytes);
    Ok(address)
}

/// Gives device memory of a library back.
///
/// # Safety
/// It came from [`alloc_scratch`] for this stream with these `bytes`, and nothing uses it any more.
pub unsafe fn free_scratch(
    context: &Context,
    stream: Stream,
    address: u64,
    bytes: usize,
) -> Result<(), DriverError> {
    context.scratch.remove(stream, bytes);
    // SAFETY: as the caller promises.
    unsafe { free(context, address) }
}

/// Page-locked host memory. It is cached as any other memory, because the host reads what the device writes there.
pub fn alloc_pinned(context: &Context, bytes: usize) -> Result<*mut u8, DriverError> {
    let mut memory: *mut c_void = std::ptr::null_mut();
    let flags = 0;
    // SAFETY: it writes the pointer.
    unsafe { call!(context.api, cuMemHostAlloc(&mut memory, bytes.max(1), flags)) }?;
    Ok(memory.cast())
}

/// Gives page-locked memory back.
///
/// # Safety
/// As [`free`].
pub unsafe fn free_pinned(context: &Context, memory: *mut u8) -> Result<(), DriverError> {
    // SAFETY: as the caller promises.
    unsafe { call!(context.api, cuMemFreeHost(memory.cast())) }
}

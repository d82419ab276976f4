//! Device memory and page-locked host memory.
//!
//! Allocation is synchronous rather than stream-ordered: buffers come from the caching allocator
//! ([`CachingAllocator`](meshwright_backend::CachingAllocator)), which allocates on first need and keeps memory. A
//! second pool below it, the driver's, would only hide the memory in use.

use std::ffi::c_void;

use cudarc::driver::sys::{CUdeviceptr, CUresult};

use super::context::{DeviceContext, call};
use crate::{DriverError, Stream};

/// Returns the free device memory, in bytes.
pub fn free_bytes(context: &DeviceContext) -> Result<usize, DriverError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { call!(context.api, cuMemGetInfo_v2(&mut free, &mut total)) }?;
    Ok(free)
}

/// Allocates device memory.
pub fn alloc(context: &DeviceContext, bytes: usize) -> Result<u64, DriverError> {
    let mut address: CUdeviceptr = 0;
    // SAFETY: writes the address.
    let result = unsafe { (context.api.cuMemAlloc_v2)(&mut address, bytes.max(1)) };
    if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Err(DriverError::OutOfMemory { bytes });
    }
    context.api.check_status("cuMemAlloc", result).map(|()| address)
}

/// Frees device memory.
///
/// # Safety
/// The memory came from [`alloc`], and nothing uses it any more.
pub unsafe fn free(context: &DeviceContext, address: u64) -> Result<(), DriverError> {
    // SAFETY: as the caller promises.
    unsafe { call!(context.api, cuMemFree_v2(address)) }
}

/// Allocates and accounts a library workspace for work on a stream.
pub fn alloc_workspace(
    context: &DeviceContext,
    stream: Stream,
    bytes: usize,
) -> Result<u64, DriverError> {
    let address = alloc(context, bytes)?;
    context.workspaces.add_workspace(stream, bytes);
    Ok(address)
}

/// Frees a library workspace.
///
/// # Safety
/// It came from [`alloc_workspace`] for this stream with the same `bytes`, and nothing uses it any more.
pub unsafe fn free_workspace(
    context: &DeviceContext,
    stream: Stream,
    address: u64,
    bytes: usize,
) -> Result<(), DriverError> {
    context.workspaces.remove(stream, bytes);
    // SAFETY: as the caller promises.
    unsafe { free(context, address) }
}

/// Allocates page-locked host memory. It is CPU-cached (not write-combined), because the host reads what the device
/// writes.
pub fn alloc_pinned(context: &DeviceContext, bytes: usize) -> Result<*mut u8, DriverError> {
    let mut memory: *mut c_void = std::ptr::null_mut();
    let flags = 0;
    // SAFETY: writes the pointer.
    unsafe { call!(context.api, cuMemHostAlloc(&mut memory, bytes.max(1), flags)) }?;
    Ok(memory.cast())
}

/// Frees page-locked memory.
///
/// # Safety
/// As [`free`].
pub unsafe fn free_pinned(context: &DeviceContext, memory: *mut u8) -> Result<(), DriverError> {
    // SAFETY: as the caller promises.
    unsafe { call!(context.api, cuMemFreeHost(memory.cast())) }
}

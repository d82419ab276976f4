//! Reductions over the contributions of ranks on one device.

use bytemuck::{Pod, Zeroable};

use crate::GpuContext;
use crate::driver::{DriverCalls, unwrap_call};
use crate::gpu::args;
use crate::kernels::COMBINE;
use meshwright_backend::{DType, ReduceOp, Runs, StreamKind};

use super::launch::{covering, float_name, vector_width};

/// Maximum sources whose addresses are parameters of the kernel; more are read from a table.
const HERE: usize = 16;

/// `Sources` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Sources {
    here: [u64; HERE],
    others: u64,
    count: u64,
}

/// Implements [`Device::combine`](meshwright_backend::Device::combine). With more than 16 sources it waits for the
/// stream.
///
/// # Safety
/// As [`Device::combine`](meshwright_backend::Device::combine).
pub unsafe fn combine(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    op: ReduceOp,
    dtype: DType,
    dst: *mut u8,
    srcs: &[*const u8],
    len: usize,
) {
    let n = len as u64;
    let addresses: Vec<u64> = srcs.iter().map(|src| *src as u64).collect();
    let [head, vectors] = vectors(dst as u64, &addresses, len, dtype);
    let name = format!("combine_{}_{}", op.name(), float_name(dtype));
    let grid = covering(gpu, n.div_ceil(vector_width(dtype) as u64));
    // SAFETY: as the caller promises.
    unsafe {
        with_sources(gpu, stream_kind, &addresses, |sources| {
            let kernel = (&COMBINE, &*name);
            gpu.launch_on(stream_kind, kernel, grid, args![sources, dst as u64, head, vectors, n]);
        });
    }
}

/// Implements [`Device::combine_runs`](meshwright_backend::Device::combine_runs). Waits as [`combine`].
///
/// # Safety
/// As [`Device::combine_runs`](meshwright_backend::Device::combine_runs).
pub unsafe fn combine_runs(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    op: ReduceOp,
    dtype: DType,
    dst: *mut u8,
    srcs: &[*const u8],
    runs: &Runs,
) {
    let Runs { count, len, distance } = *runs;
    let addresses: Vec<u64> = srcs.iter().map(|src| *src as u64).collect();
    // Vectors of 128 bits, if every run of every operand is aligned to them.
    let bytes = [len, distance].map(|n| (n * dtype.bytes()) as u64);
    let all = addresses.iter().fold(dst as u64 | bytes[0] | bytes[1], |all, one| all | one);
    let is_wide = all.is_multiple_of(16);
    let width = if is_wide { vector_width(dtype) } else { 1 };
    let name = format!(
        "combine_runs_{}_{}{}",
        op.name(),
        float_name(dtype),
        if is_wide { "_wide" } else { "" }
    );
    let [count, len, distance] = [count, len / width, distance / width].map(|n| n as u64);
    let grid = covering(gpu, count * len);
    // SAFETY: as the caller promises.
    unsafe {
        with_sources(gpu, stream_kind, &addresses, |sources| {
            let kernel = (&COMBINE, &*name);
            gpu.launch_on(
                stream_kind,
                kernel,
                grid,
                args![sources, dst as u64, count, len, distance],
            );
        });
    }
}

/// Calls `launch` with a device table of these addresses.
///
/// # Safety
/// As [`Device::combine`](meshwright_backend::Device::combine).
unsafe fn with_sources(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    addresses: &[u64],
    launch: impl FnOnce(Sources),
) {
    assert!(!addresses.is_empty(), "a reduction has contributions");
    let (first, others) = addresses.split_at(addresses.len().min(HERE));
    let mut sources = Sources { here: [0; HERE], others: 0, count: addresses.len() as u64 };
    sources.here[..first.len()].copy_from_slice(first);
    if others.is_empty() {
        return launch(sources);
    }
    let (driver, stream) = (gpu.driver(), gpu.stream(stream_kind));
    let bytes = size_of_val(others);
    sources.others = unwrap_call(driver.alloc(bytes));
    // SAFETY: the table is as long as the addresses, which stay allocated until the stream is synchronized.
    unwrap_call(unsafe { driver.upload(stream, sources.others, others.as_ptr().cast(), bytes) });
    launch(sources);
    unwrap_call(driver.synchronize(stream));
    // SAFETY: the kernel that reads the table is done.
    unwrap_call(unsafe { driver.free(sources.others, bytes) });
}

/// Returns the number of elements before the first that is aligned in all operands, and the number of 128-bit vectors
/// from there on.
fn vectors(dst: u64, srcs: &[u64], len: usize, dtype: DType) -> [u64; 2] {
    let phase = |address: u64| address % 16;
    if srcs.iter().any(|src| phase(*src) != phase(dst)) {
        return [0, 0];
    }
    let head = len.min((16 - phase(dst) as usize) % 16 / dtype.bytes());
    [head as u64, ((len - head) / vector_width(dtype)) as u64]
}

//! Concatenation and splitting of rows of tensors.

use bytemuck::{Pod, Zeroable};

use crate::GpuContext;
use crate::gpu::args;
use crate::kernels::ROWS;
use meshwright_backend::{RowPart, StreamKind};

use super::launch::covering;

/// Maximum parts per launch.
const MOST: usize = 32;

/// `RowParts` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RowPartsParam {
    count: u64,
    ends: [u64; MOST],
    at: [u64; MOST],
}

/// Implements [`Device::join_rows`](meshwright_backend::Device::join_rows).
///
/// # Safety
/// As for the method of the device.
pub unsafe fn join_rows(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    rows: usize,
    whole: *mut u8,
    parts: &[RowPart],
) {
    // SAFETY: as the caller promises.
    unsafe { launch_copies(gpu, stream_kind, "join_rows", rows, whole as u64, parts) };
}

/// Implements [`Device::split_rows`](meshwright_backend::Device::split_rows).
///
/// # Safety
/// As for the method of the device.
pub unsafe fn split_rows(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    rows: usize,
    whole: *const u8,
    parts: &[RowPart],
) {
    // SAFETY: as the caller promises.
    unsafe { launch_copies(gpu, stream_kind, "split_rows", rows, whole as u64, parts) };
}

/// # Safety
/// As the kernels: the parts have `rows` rows, and the whole all of them.
unsafe fn launch_copies(
    gpu: &GpuContext,
    stream_kind: StreamKind,
    name: &str,
    rows: usize,
    whole: u64,
    parts: &[RowPart],
) {
    let parts: Vec<RowPart> = parts.iter().copied().filter(|part| part.bytes > 0).collect();
    let stride: usize = parts.iter().map(|part| part.bytes).sum();
    // In the largest units to which every part of every row is aligned.
    let all = parts.iter().fold(whole | 16, |all, part| all | part.address | part.bytes as u64);
    let unit = 1 << all.trailing_zeros();
    let (rows, stride) = (rows as u64, stride as u64 / unit);
    let mut begin = whole;
    for parts in parts.chunks(MOST) {
        let mut table = RowPartsParam { count: parts.len() as u64, ends: [0; MOST], at: [0; MOST] };
        let mut width = 0;
        for (index, part) in parts.iter().enumerate() {
            width += part.bytes as u64 / unit;
            (table.ends[index], table.at[index]) = (width, part.address);
        }
        let args = args![begin, rows, stride, table];
        // SAFETY: as the caller promises.
        unsafe {
            gpu.launch_on(
                stream_kind,
                (&ROWS, &format!("{name}_{unit}")),
                covering(gpu, rows * width),
                args,
            )
        };
        begin += width * unit;
    }
}

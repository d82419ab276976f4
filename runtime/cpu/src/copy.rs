//! Copies, casts and in-place arithmetic over whole operands.

use half::bf16;

use super::CpuBackend;
use super::float::{self, Float, by_float};
use super::simd::dispatch;
use super::strided_copy::copy_strided;
use super::workers::{Rows, Workers};
use meshwright_backend::{BlockCopy, CopyOps, DType, StridedCopy, View, ViewMut};

impl CopyOps for CpuBackend {
    fn copy_blocks(&self, copy: &BlockCopy, src: View, mut dst: ViewMut) {
        let workers = &self.workers;
        match dst.dtype() {
            DType::F32 => copy_blocks::<f32>(workers, copy, src.typed(), dst.typed()),
            DType::Bf16 => copy_blocks::<bf16>(workers, copy, src.typed(), dst.typed()),
            DType::U32 => copy_blocks::<u32>(workers, copy, src.typed(), dst.typed()),
            DType::F64 => copy_blocks::<f64>(workers, copy, src.typed(), dst.typed()),
        }
    }

    fn copy_strided(&self, copy: &StridedCopy, src: View, mut dst: ViewMut) {
        let workers = &self.workers;
        match dst.dtype() {
            DType::F32 => copy_strided::<f32>(workers, copy, src.typed(), dst.typed()),
            DType::Bf16 => copy_strided::<bf16>(workers, copy, src.typed(), dst.typed()),
            DType::U32 => copy_strided::<u32>(workers, copy, src.typed(), dst.typed()),
            DType::F64 => copy_strided::<f64>(workers, copy, src.typed(), dst.typed()),
        }
    }

    fn cast(&self, src: View, mut dst: ViewMut) {
        by_float!(src.dtype() => T, dst.dtype() => U;
            cast_elements::<T, U>(&self.workers, src.typed(), dst.typed()));
    }

    fn add_assign(&self, mut dst: ViewMut, src: View) {
        by_float!(dst.dtype() => T, src.dtype() => U;
            add_assign::<T, U>(&self.workers, dst.typed(), src.typed()));
    }

    fn lerp(&self, mut dst: ViewMut, src: View, weight: f32) {
        by_float!(dst.dtype() => T, src.dtype() => U;
            lerp::<T, U>(&self.workers, dst.typed(), src.typed(), weight));
    }

    fn fill(&self, mut dst: ViewMut, value: f32) {
        by_float!(dst.dtype() => T; fill_elements::<T>(&self.workers, dst.typed(), value));
    }

    fn scale(&self, mut dst: ViewMut, factor: f32) {
        by_float!(dst.dtype() => T; scale::<T>(&self.workers, dst.typed(), factor));
    }
}

fn copy_blocks<T: Copy + Send + Sync>(
    workers: &Workers,
    copy: &BlockCopy,
    src: &[T],
    dst: &mut [T],
) {
    let &BlockCopy { blocks, len, src_start, src_stride, dst_start, dst_stride } = copy;
    if blocks == 0 || len == 0 {
        return;
    }
    let end = |start: usize, stride: usize| start + (blocks - 1) * stride + len;
    let (src_end, dst_end) = (end(src_start, src_stride), end(dst_start, dst_stride));
    assert!(src_end <= src.len() && dst_end <= dst.len(), "copied runs are inside the operands");
    assert!(blocks == 1 || dst_stride >= len, "written runs do not overlap");
    let stride = if blocks == 1 { len } else { dst_stride };
    let dst = Rows(&mut dst[dst_start..dst_end], stride);
    workers.rows(blocks, len, dst, |range, dst| {
        for (block, dst) in range.zip(dst.0.chunks_mut(stride)) {
            dst[..len].copy_from_slice(&src[src_start + block * src_stride..][..len]);
        }
    });
}

fn cast_elements<T: Float, U: Float>(workers: &Workers, src: &[T], dst: &mut [U]) {
    assert_eq!(dst.len(), src.len(), "cast: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| float::cast_slice(&src[range], dst.0));
}

fn add_assign<T: Float, U: Float>(workers: &Workers, dst: &mut [T], src: &[U]) {
    assert_eq!(dst.len(), src.len(), "add_assign: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| add_range(dst.0, &src[range]));
}

dispatch! {
    fn add_range<const FMA: bool, T: Float, U: Float>(dst: &mut [T], src: &[U]) {
        for (dst, src) in dst.iter_mut().zip(src) {
            *dst = T::narrow_from_f32(dst.widen_to_f32() + src.widen_to_f32());
        }
    }
}

fn lerp<T: Float, U: Float>(workers: &Workers, dst: &mut [T], src: &[U], weight: f32) {
    assert_eq!(dst.len(), src.len(), "lerp: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| interpolate(dst.0, &src[range], weight));
}

dispatch! {
    fn interpolate<const FMA: bool, T: Float, U: Float>(dst: &mut [T], src: &[U], weight: f32) {
        for (dst, src) in dst.iter_mut().zip(src) {
            let old = dst.widen_to_f32();
            *dst = T::narrow_from_f32(old + weight * (src.widen_to_f32() - old));
        }
    }
}

fn fill_elements<T: Float>(workers: &Workers, dst: &mut [T], value: f32) {
    let value = T::narrow_from_f32(value);
    workers.rows(dst.len(), 1, Rows(dst, 1), |_, dst| dst.0.fill(value));
}

fn scale<T: Float>(workers: &Workers, dst: &mut [T], factor: f32) {
    workers.rows(dst.len(), 1, Rows(dst, 1), |_, dst| scale_range(dst.0, factor));
}

dispatch! {
    fn scale_range<const FMA: bool, T: Float>(dst: &mut [T], factor: f32) {
        for dst in dst {
            *dst = T::narrow_from_f32(dst.widen_to_f32() * factor);
        }
    }
}

//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{View, ViewMut};

pub fn copy_blocks(
    gpu: &Gpu,
    blocks: usize,
    len: usize,
    src: View,
    src_start: usize,
    src_stride: usize,
    dst: ViewMut,
    dst_start: usize,
    dst_stride: usize,
) {
    todo!()
}

pub fn cast(gpu: &Gpu, src: View, dst: ViewMut) {
    todo!()
}

pub fn add_assign(gpu: &Gpu, dst: ViewMut, src: View) {
    todo!()
}

pub fn lerp(gpu: &Gpu, dst: ViewMut, src: View, weight: f32) {
    todo!()
}

pub fn fill(gpu: &Gpu, dst: ViewMut, value: f32) {
    todo!()
}

pub fn scale(gpu: &Gpu, dst: ViewMut, factor: f32) {
    todo!()
}

//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{BlockIndex, ViewMut};

pub fn normal(gpu: &Gpu, key: u64, std: f32, index: &BlockIndex, out: ViewMut) {
    todo!()
}

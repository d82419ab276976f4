//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{RopeShape, View, ViewMut};

pub fn rope(gpu: &Gpu, s: &RopeShape, x: ViewMut, cos: View, sin: View, inverse: bool) {
    todo!()
}

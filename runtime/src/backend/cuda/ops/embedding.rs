//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{View, ViewMut};

pub fn embedding(gpu: &Gpu, tokens: View, table: View, first_row: usize, out: ViewMut) {
    todo!()
}

pub fn embedding_backward(gpu: &Gpu, tokens: View, first_row: usize, dout: View, dtable: ViewMut) {
    todo!()
}

//! Kernels of elementwise expressions.

use std::sync::Arc;

use meshwright::backend::{
    Backend, BlockIndex, CachingAllocator, Category, DType, DropoutMask, ElementwiseOps, Expr, Node,
};
use meshwright_cuda::{CallKind, CudaBackend};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::values;

use Node::*;

#[test]
fn expressions_of_one_structure_are_one_kernel() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let allocator = CachingAllocator::on(cuda.device(), usize::MAX);
    for (rows, cols, factor, key, rate) in [(4, 64, 2.0, 1, 0.1), (9, 7, -1.0, 2, 0.9)] {
        let index = BlockIndex::whole(&[rows, cols]);
        let mask = DropoutMask { key, rate, index };
        let nodes = vec![Leaf(0), Row(1), Add(0, 1), Scale(2, factor), Dropout(3, mask)];
        let leaves =
            [rows * cols, cols].map(|len| allocator.copy_of(&values(len, 1), Category::Workspace));
        let mut out = allocator.alloc(DType::F32, rows * cols, Category::Workspace);
        cuda.map(&Expr { nodes }, &[leaves[0].view(), leaves[1].view()], out.view_mut());
    }
    let loads = device.log().into_iter().filter(|entry| entry.kind == CallKind::Load);
    let names: Vec<_> = loads.filter_map(|entry| entry.name).collect();
    assert_eq!(names, ["map_x0_row1_add_scale_dropout_f32"]);
}

//! Copies, casts and in-place arithmetic over whole operands.

use super::launch::{address, copy as copy_all, covering, float_name, vector_width, vectors};
use crate::gpu::args;
use crate::kernels::ELEMENTS;
use crate::{CudaBackend, GpuContext};
use meshwright_backend::{BlockCopy, CopyOps, StridedCopy, View, ViewMut};

use super::strided_copy::launch_strided_copy;

impl CopyOps for CudaBackend {
    fn copy_blocks(&self, copy: &BlockCopy, src: View, mut dst: ViewMut) {
        let gpu = self.gpu();
        let &BlockCopy { blocks, len, src_start, src_stride, dst_start, dst_stride } = copy;
        assert_eq!(src.dtype(), dst.dtype(), "copied runs have one dtype");
        if blocks == 0 || len == 0 {
            return;
        }
        let end = |start: usize, stride: usize| start + (blocks - 1) * stride + len;
        let (src_end, dst_end) = (end(src_start, src_stride), end(dst_start, dst_stride));
        assert!(
            src_end <= src.len() && dst_end <= dst.len(),
            "copied runs lie inside the operands"
        );
        assert!(blocks == 1 || dst_stride >= len, "written runs do not overlap");
        let src = src.slice(src_start..src_end);
        let dst = dst.slice(dst_start..dst_end);
        if blocks == 1 || (src_stride == len && dst_stride == len) {
            return copy_all(gpu, src, dst);
        }

        // In the largest units that every run begins and ends with.
        let (from, to) = (address(src), address(dst.as_view()));
        let bytes = [len, dst_stride, src_stride].map(|n| (n * src.dtype().bytes()) as u64);
        let unit = 1 << (from | to | bytes[0] | bytes[1] | bytes[2] | 16).trailing_zeros();
        let [len, dst_stride, src_stride] = bytes.map(|n| n / unit);
        let blocks = blocks as u64;
        let grid = covering(gpu, blocks * len);
        // SAFETY: the runs lie inside the views, and the runs of `dst` do not overlap.
        unsafe {
            gpu.launch(
                (&ELEMENTS, &format!("copy_blocks_{unit}")),
                grid,
                args![to, from, blocks, len, dst_stride, src_stride],
            )
        };
    }

    fn copy_strided(&self, copy: &StridedCopy, src: View, dst: ViewMut) {
        launch_strided_copy(self.gpu(), copy, src, dst);
    }

    fn cast(&self, src: View, dst: ViewMut) {
        let gpu = self.gpu();
        assert_eq!(dst.len(), src.len(), "cast: operands of one size");
        let (from, to) = (float_name(src.dtype()), float_name(dst.dtype()));
        if from == to {
            return copy_all(gpu, src, dst);
        }
        let n = src.len() as u64;
        let [head, whole] = vectors(&[src, dst.as_view()], 4);
        let grid = covering(gpu, whole.max(n - 4 * whole));
        // SAFETY: both views have `n` elements of the dtypes in the name, and the vectors of both are aligned.
        unsafe {
            gpu.launch(
                (&ELEMENTS, &format!("cast_{from}_{to}")),
                grid,
                args![address(dst.as_view()), address(src), head, whole, n],
            )
        };
    }

    fn add_assign(&self, dst: ViewMut, src: View) {
        assert_eq!(dst.len(), src.len(), "add_assign: operands of one size");
        launch_update(self.gpu(), "add_assign", dst, src, None);
    }

    fn lerp(&self, dst: ViewMut, src: View, weight: f32) {
        assert_eq!(dst.len(), src.len(), "lerp: operands of one size");
        launch_update(self.gpu(), "lerp", dst, src, Some(weight));
    }

    fn fill(&self, dst: ViewMut, value: f32) {
        update_alone(self.gpu(), "fill", dst, value);
    }

    fn scale(&self, dst: ViewMut, factor: f32) {
        update_alone(self.gpu(), "scale", dst, factor);
    }
}

/// Launches an elementwise kernel over `dst` and `src`, with a scalar for some kernels.
fn launch_update(gpu: &GpuContext, name: &str, dst: ViewMut, src: View, number: Option<f32>) {
    let name = format!("{name}_{}_{}", float_name(dst.dtype()), float_name(src.dtype()));
    let width = vector_width(dst.dtype()).min(vector_width(src.dtype()));
    let n = src.len() as u64;
    let [head, whole] = vectors(&[dst.as_view(), src], width);
    let grid = covering(gpu, whole.max(n - width as u64 * whole));
    let (to, from) = (address(dst.as_view()), address(src));
    let args: &[&[u8]] = match &number {
        Some(number) => args![to, from, *number, head, whole, n],
        None => args![to, from, head, whole, n],
    };
    // SAFETY: both views have `n` elements of the dtypes in the name, and the vectors of both are aligned.
    unsafe { gpu.launch((&ELEMENTS, &name), grid, args) };
}

/// Launches an elementwise kernel over one operand, with a scalar.
fn update_alone(gpu: &GpuContext, name: &str, dst: ViewMut, number: f32) {
    let name = format!("{name}_{}", float_name(dst.dtype()));
    let (width, n) = (vector_width(dst.dtype()), dst.len() as u64);
    let [head, whole] = vectors(&[dst.as_view()], width);
    let grid = covering(gpu, whole.max(n - width as u64 * whole));
    // SAFETY: the view has `n` elements of the dtype in the name, and its vectors are aligned.
    unsafe {
        gpu.launch((&ELEMENTS, &name), grid, args![address(dst.as_view()), number, head, whole, n])
    };
}

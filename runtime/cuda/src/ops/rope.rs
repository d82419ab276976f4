//! Rotary position embedding.

use super::launch::{address, aligned, covering, float_name, vector_width};
use crate::CudaBackend;
use crate::gpu::args;
use crate::kernels::ROPE;
use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{DType, RopeLayout, RopeOps, RopeShape};

/// Heads that a thread rotates, as in `kernels/rope.cu`.
const HEADS: u64 = 2;

impl RopeOps for CudaBackend {
    fn rope(&self, s: &RopeShape, args: RopeArgs) {
        let RopeArgs { x, cos, sin, inverse, y } = args;
        let gpu = self.gpu();
        s.check_pairs();
        let (half, pass, y) = (s.rotary_dim / 2, s.head_dim - s.rotary_dim, y.as_view());
        for operand in [x, y] {
            assert_eq!(operand.len(), s.elements(), "rope operands fit {s:?}");
            assert_eq!(operand.dtype(), x.dtype(), "rope: operands of one dtype");
        }
        for table in [cos, sin] {
            assert_eq!(table.len(), s.seq * half, "rope tables fit {s:?}");
            assert_eq!(table.dtype(), DType::F32, "rope tables are f32");
        }
        let width = vector_width(x.dtype());
        let vectors = half.is_multiple_of(width)
            && pass.is_multiple_of(width)
            && aligned(&[x, y, cos, sin], width);
        let (form, width) = if vectors { ("", width) } else { ("any_", 1) };
        let layout = match s.layout {
            RopeLayout::HalfSplit => "",
            RopeLayout::Interleaved => "interleaved_",
        };
        let name = format!("rope_{layout}{form}{}", float_name(x.dtype()));
        let sign: f32 = if inverse { -1.0 } else { 1.0 };
        let [positions, seq, heads, half, pass] =
            [s.batch * s.seq, s.seq, s.heads, half, pass].map(|n| n as u64);
        let grid =
            covering(gpu, positions * heads.div_ceil(HEADS) * ((half + pass) / width as u64));
        // SAFETY: the operands have the sizes that were checked, of the dtype in the name, and the alignment of the
        // form.
        unsafe {
            gpu.launch(
                (&ROPE, &name),
                grid,
                args![
                    address(x),
                    address(y),
                    address(cos),
                    address(sin),
                    sign,
                    positions,
                    seq,
                    heads,
                    half,
                    pass
                ],
            )
        };
    }
}

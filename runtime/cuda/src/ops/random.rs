//! Counter-based randomness: an element's value is a function of a key and its global index.

use bytemuck::{Pod, Zeroable};

use crate::CudaBackend;
use crate::gpu::args;
use crate::kernels::RANDOM;
use meshwright_backend::{BlockIndex, RandomOps, ViewMut};

use super::launch::{address, covering, float_name};
use super::strided::StridedBlock;

/// Maximum dims of a kernel, after contiguous dims are merged.
const DIMS: usize = 16;

/// The argument `BlockStrides` of kernels: a [`StridedBlock`].
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BlockStrides {
    first: u64,
    dims: u64,
    sizes: [u64; DIMS],
    strides: [u64; DIMS],
}

impl BlockStrides {
    /// # Panics
    /// When a block is split in more than 16 dims, or has a gap, which no parameter has.
    fn new(index: &BlockIndex) -> BlockStrides {
        let StridedBlock { first, sizes, strides, gaps } = StridedBlock::from_index(index);
        assert!(gaps.is_empty(), "numbers are drawn for one range of indices of each dim");
        let dims = sizes.len();
        assert!(dims <= DIMS, "a block is split in at most {DIMS} dims");
        let mut block =
            BlockStrides { first, dims: dims as u64, sizes: [1; DIMS], strides: [1; DIMS] };
        block.sizes[..dims].copy_from_slice(&sizes);
        block.strides[..dims].copy_from_slice(&strides);
        block
    }
}

impl RandomOps for CudaBackend {
    fn fill_normal(&self, key: u64, std: f32, index: &BlockIndex, out: ViewMut) {
        self.fill_block("normal", (key, std), index, out);
    }

    fn fill_uniform(&self, key: u64, bound: f32, index: &BlockIndex, out: ViewMut) {
        self.fill_block("uniform", (key, bound), index, out);
    }
}

impl CudaBackend {
    /// Fills a block with numbers of a distribution.
    fn fill_block(&self, kernel: &str, (key, scale): (u64, f32), index: &BlockIndex, out: ViewMut) {
        let gpu = self.gpu();
        let out = out.as_view();
        assert_eq!(index.len(), out.len(), "the block index fits the operand");
        let n = out.len() as u64;
        let name = format!("{kernel}_{}", float_name(out.dtype()));
        // SAFETY: the block has as many elements as the operand.
        unsafe {
            gpu.launch(
                (&RANDOM, &name),
                covering(gpu, n),
                args![key, scale, BlockStrides::new(index), address(out), n],
            )
        };
    }
}

//! Attention kernels without tensor cores.

use crate::backend::View;
use crate::backend::cuda::DenseAttention;
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::attention::PLAIN;
use crate::backend::cuda::{GpuContext, Grid};

use super::super::launch::{at, float_name};
use super::{Given, Sizes, TWO_PASS_MATMULS, blocks};

/// Rows of a block, and columns of a step.
const TILE: usize = 16;

pub(super) fn forward(gpu: &GpuContext, s: &DenseAttention, [q, k, v, out]: [View; 4], lse: View) {
    let name = format!("attention_plain_forward_{}", float_name(q.dtype()));
    let (sizes, dim) = (Sizes::new(s), s.head_dim as i32);
    let grid = grid(gpu, s, s.heads, [4, 1]);
    // SAFETY: the views have the sizes of the shape.
    unsafe {
        gpu.launch((&PLAIN, &name), grid, args![at(q), at(k), at(v), at(out), at(lse), sizes, dim])
    };
}

/// Launches the backward kernels and returns the matmuls per score.
pub(super) fn backward(
    gpu: &GpuContext,
    s: &DenseAttention,
    given: Given,
    [dq, dk, dv]: [View; 3],
) -> u64 {
    let Given { q, k, v, dout, lse, delta } = given;
    let dtype = float_name(q.dtype());
    let (sizes, dim) = (Sizes::new(s), s.head_dim as i32);
    let [q, k, v, dout, lse, dq, dk, dv] = [q, k, v, dout, lse, dq, dk, dv].map(at);

    let name = format!("attention_plain_backward_keys_{dtype}");
    let of_keys = grid(gpu, s, s.kv_heads, [6, 2]);
    let args = args![q, k, v, dout, lse, delta, dk, dv, sizes, dim];
    // SAFETY: the views have the sizes of the shape.
    unsafe { gpu.launch((&PLAIN, &name), of_keys, args) };

    let name = format!("attention_plain_backward_queries_{dtype}");
    let of_queries = grid(gpu, s, s.heads, [5, 1]);
    let args = args![q, k, v, dout, lse, delta, dq, sizes, dim];
    // SAFETY: as above.
    unsafe { gpu.launch((&PLAIN, &name), of_queries, args) };
    TWO_PASS_MATMULS
}

/// Returns the grid of blocks with this many tiles of rows and of scores in shared memory.
fn grid(gpu: &GpuContext, s: &DenseAttention, heads: usize, [rows, scores]: [usize; 2]) -> Grid {
    let shared = TILE * (rows * (s.head_dim | 1) + scores * TILE) * size_of::<f32>();
    let most = gpu.driver().properties().shared_memory;
    assert!(
        shared <= most,
        "attention with heads of {} elements needs {shared} bytes of shared memory for a block, of which this device \
         has {most}: use smaller heads",
        s.head_dim
    );
    Grid { blocks: blocks(s, heads, TILE), threads: (TILE * TILE) as u32, shared: shared as u32 }
}

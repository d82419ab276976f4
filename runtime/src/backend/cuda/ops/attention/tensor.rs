//! Attention kernels for tensor cores.

use crate::backend::View;
use crate::backend::cuda::DenseAttention;
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::attention::{Tiles, WARPS};
use crate::backend::cuda::{GpuContext, Grid};

use super::super::launch::at;
use super::{Given, Sizes, TWO_PASS_MATMULS, are_aligned_bf16, blocks};

/// Returns true if the kernels support these operands on this device.
pub(super) fn takes(gpu: &GpuContext, s: &DenseAttention, operands: &[View]) -> bool {
    let most = gpu.driver().properties().shared_memory;
    let dim = s.head_dim;
    let fits = || {
        let all = [Tiles::forward(dim), Tiles::backward_keys(dim), Tiles::backward_queries(dim)];
        all.iter().all(|tiles| tiles.shared_bytes() <= most)
    };
    are_aligned_bf16(operands) && dim.is_multiple_of(8) && dim <= 256 && fits()
}

pub(super) fn forward(gpu: &GpuContext, s: &DenseAttention, [q, k, v, out]: [View; 4], lse: View) {
    let tiles = Tiles::forward(s.head_dim);
    let [q, k, v, out, lse] = [q, k, v, out, lse].map(at);
    let sizes = Sizes::new(s);
    let args = args![q, k, v, out, lse, sizes];
    // SAFETY: the views have the sizes of the shape, and are aligned.
    unsafe { gpu.launch((tiles.source(), "attention_forward"), grid(s, &tiles, s.heads), args) };
}

/// Launches the backward kernels and returns the matmuls per score.
pub(super) fn backward(
    gpu: &GpuContext,
    s: &DenseAttention,
    given: Given,
    [dq, dk, dv]: [View; 3],
) -> u64 {
    let Given { q, k, v, dout, lse, delta } = given;
    let [q, k, v, dout, lse, dq, dk, dv] = [q, k, v, dout, lse, dq, dk, dv].map(at);
    let sizes = Sizes::new(s);

    let tiles = Tiles::backward_keys(s.head_dim);
    let grid_of_keys = grid(s, &tiles, s.kv_heads);
    let source = tiles.source();
    let both = tiles.both_gradients();
    if both {
        let args = args![q, k, v, dout, lse, delta, dk, dv, sizes];
        // SAFETY: the views have the sizes of the shape, and are aligned.
        unsafe { gpu.launch((source, "attention_backward_keys"), grid_of_keys, args) };
    } else {
        let args = args![q, k, v, dout, lse, delta, dk, sizes];
        // SAFETY: as above.
        unsafe { gpu.launch((source, "attention_backward_keys"), grid_of_keys, args) };
        let args = args![q, k, v, dout, lse, delta, dv, sizes];
        // SAFETY: as above.
        unsafe { gpu.launch((source, "attention_backward_values"), grid_of_keys, args) };
    }

    let tiles = Tiles::backward_queries(s.head_dim);
    let grid_of_queries = grid(s, &tiles, s.heads);
    let args = args![q, k, v, dout, lse, delta, dq, sizes];
    // SAFETY: as above.
    unsafe { gpu.launch((tiles.source(), "attention_backward_queries"), grid_of_queries, args) };
    // If keys and values have a kernel each, both compute the scores.
    if both { TWO_PASS_MATMULS } else { TWO_PASS_MATMULS + 1 }
}

fn grid(s: &DenseAttention, tiles: &Tiles, heads: usize) -> Grid {
    Grid {
        blocks: blocks(s, heads, tiles.rows()),
        threads: 32 * WARPS as u32,
        shared: tiles.shared_bytes() as u32,
    }
}

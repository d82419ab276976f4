//! Attention kernels for tensor cores.

use crate::gpu::args;
use crate::kernels::attention::{AttentionTiles, Variant, WARPS};
use crate::{GpuContext, Grid};
use meshwright_backend::{AttentionShape, DType, View};

use super::super::launch::{address, aligned};
use super::sizes::{AttentionSizes, ExtraArguments};
use super::{Given, GradientViews, Operands, blocks};

/// Returns the forward kernel, if there is one for these operands on this device.
pub(super) fn forward_kernel(
    gpu: &GpuContext,
    s: &AttentionShape,
    variant: Variant,
    operands: &Operands,
) -> Option<AttentionTiles> {
    let &Operands { q, k, v, out, .. } = operands;
    let variant = Variant { wide: out.dtype() == DType::F32, ..variant };
    (accepts_operands(s, &[q, k, v], &[out]) && fits_device(gpu, s, variant))
        .then(|| AttentionTiles::forward(head_dims(s), variant))
}

pub(super) fn forward(
    gpu: &GpuContext,
    s: &AttentionShape,
    tiles: &AttentionTiles,
    extras: ExtraArguments,
    operands: &Operands,
) {
    let &Operands { q, k, v, out, lse } = operands;
    let [q, k, v, out, lse] = [q, k, v, out, lse].map(address);
    let sizes = AttentionSizes::new(s);
    let args = args![q, k, v, out, lse, sizes, extras];
    let grid = tensor_grid(tiles, blocks(s, s.queries.len, s.heads, tiles.rows()));
    // SAFETY: the views have the sizes of the shape, and are aligned.
    unsafe { gpu.launch((tiles.source(), "attention_forward"), grid, args) };
}

/// Kernels of the backward pass.
pub(super) struct TensorCoreBackward {
    of_keys: AttentionTiles,
    of_queries: AttentionTiles,
}

impl TensorCoreBackward {
    /// Returns the kernels, if tensor-core kernels support these operands on this device. They do not read sinks.
    pub(super) fn new(
        gpu: &GpuContext,
        s: &AttentionShape,
        variant: Variant,
        given: &Given,
        gradients: &GradientViews,
    ) -> Option<TensorCoreBackward> {
        let &Given { q, k, v, dout, .. } = given;
        let &GradientViews { dq, dk, dv } = gradients;
        let of = |to: View| Variant { wide: to.dtype() == DType::F32, sinks: false, ..variant };
        (accepts_operands(s, &[q, k, v, dout], &[dq, dk, dv]) && fits_device(gpu, s, variant)).then(
            || TensorCoreBackward {
                of_keys: AttentionTiles::backward_keys(head_dims(s), of(dk)),
                of_queries: AttentionTiles::backward_queries(head_dims(s), of(dq)),
            },
        )
    }

    /// Returns the names of the sources.
    pub(super) fn names(&self) -> String {
        [&self.of_keys, &self.of_queries].map(|tiles| &*tiles.source().name).join(" ")
    }

    /// Returns true if one kernel computes the gradients of both keys and values.
    pub(super) fn both_gradients(&self) -> bool {
        self.of_keys.both_gradients()
    }

    /// Launches the kernels.
    pub(super) fn run_passes(
        &self,
        gpu: &GpuContext,
        s: &AttentionShape,
        extras: ExtraArguments,
        given: &Given,
        gradients: GradientViews,
    ) {
        let &Given { q, k, v, dout, lse, delta } = given;
        let GradientViews { dq, dk, dv } = gradients;
        let [q, k, v, dout, lse, dq, dk, dv] = [q, k, v, dout, lse, dq, dk, dv].map(address);
        let sizes = AttentionSizes::new(s);

        let tiles = &self.of_keys;
        let grid_of_keys = tensor_grid(tiles, blocks(s, s.keys.len, s.kv_heads, tiles.rows()));
        let source = tiles.source();
        if self.both_gradients() {
            let args = args![q, k, v, dout, lse, delta, dk, dv, sizes, extras];
            // SAFETY: the views have the sizes of the shape, and are aligned.
            unsafe { gpu.launch((source, "attention_backward_keys"), grid_of_keys, args) };
        } else {
            let args = args![q, k, v, dout, lse, delta, dk, sizes, extras];
            // SAFETY: as above.
            unsafe { gpu.launch((source, "attention_backward_keys"), grid_of_keys, args) };
            let args = args![q, k, v, dout, lse, delta, dv, sizes, extras];
            // SAFETY: as above.
            unsafe { gpu.launch((source, "attention_backward_values"), grid_of_keys, args) };
        }

        let tiles = &self.of_queries;
        let grid_of_queries = tensor_grid(tiles, blocks(s, s.queries.len, s.heads, tiles.rows()));
        let args = args![q, k, v, dout, lse, delta, dq, sizes, extras];
        // SAFETY: as above.
        unsafe {
            gpu.launch((tiles.source(), "attention_backward_queries"), grid_of_queries, args)
        };
    }
}

/// Returns true if there are kernels for these sizes, dtypes and addresses.
fn accepts_operands(s: &AttentionShape, inputs: &[View], results: &[View]) -> bool {
    let is_bf16 = inputs.iter().all(|view| view.dtype() == DType::Bf16);
    is_bf16 && aligned(inputs, 8) && aligned(results, 8) && takes_heads(head_dims(s))
}

/// Returns true if kernels exist for these head sizes of keys and values.
pub(super) fn takes_heads(dims: [usize; 2]) -> bool {
    dims.iter().all(|dim| dim.is_multiple_of(8) && (1..=256).contains(dim))
}

fn head_dims(s: &AttentionShape) -> [usize; 2] {
    [s.head_dim, s.value_dim]
}

/// Returns true if the device has the shared memory of all passes, so that all passes use tensor-core kernels.
fn fits_device(gpu: &GpuContext, s: &AttentionShape, variant: Variant) -> bool {
    let most = gpu.driver().properties().shared_memory;
    [AttentionTiles::forward, AttentionTiles::backward_keys, AttentionTiles::backward_queries]
        .iter()
        .all(|tiles| tiles(head_dims(s), variant).shared_bytes() <= most)
}

fn tensor_grid(tiles: &AttentionTiles, blocks: [u32; 3]) -> Grid {
    Grid { blocks, threads: 32 * WARPS as u32, shared: tiles.shared_bytes() as u32 }
}

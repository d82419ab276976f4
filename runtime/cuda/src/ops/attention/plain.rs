//! Attention kernels without tensor cores.

use crate::gpu::args;
use crate::kernels::attention::{PLAIN, PLAIN_DROPOUT};
use crate::{GpuContext, Grid, KernelSource};
use meshwright_backend::{AttentionShape, View};

use super::super::launch::{address, float_name};
use super::sizes::{AttentionSizes, ExtraArguments};
use super::{Given, GradientViews, Operands, blocks};

/// Rows of a block, and columns of a step.
pub(super) const TILE: usize = 16;

/// Tiles of the passes.
const FORWARD: PlainTiles = PlainTiles { of_keys: 2, of_values: 2, scores: 1 };
const BACKWARD_KEYS: PlainTiles = PlainTiles { of_keys: 3, of_values: 3, scores: 2 };
const BACKWARD_QUERIES: PlainTiles = PlainTiles { of_keys: 3, of_values: 2, scores: 1 };

/// Tiles of rows and of scores that a block has in shared memory.
#[derive(Clone, Copy)]
pub(super) struct PlainTiles {
    /// Tiles of queries, keys or their gradients.
    pub(super) of_keys: usize,
    /// Tiles of values, outputs or their gradients.
    pub(super) of_values: usize,
    /// Tiles of scores.
    pub(super) scores: usize,
}

/// Returns the source of the kernels.
pub(super) fn source(s: &AttentionShape) -> &'static KernelSource {
    if s.dropout.is_some() { &PLAIN_DROPOUT } else { &PLAIN }
}

pub(super) fn forward(
    gpu: &GpuContext,
    s: &AttentionShape,
    extras: ExtraArguments,
    operands: &Operands,
) {
    let &Operands { q, k, v, out, lse } = operands;
    let name = name("forward", q, out);
    let grid =
        Grid { blocks: blocks(s, s.queries.len, s.heads, TILE), ..plain_grid(gpu, s, FORWARD) };
    let [q, k, v, out, lse] = [q, k, v, out, lse].map(address);
    let [head_dim, value_dim] = [s.head_dim, s.value_dim].map(|dim| dim as i32);
    let sizes = AttentionSizes::new(s);
    let args = args![q, k, v, out, lse, sizes, extras, head_dim, value_dim];
    // SAFETY: the views have the sizes of the shape.
    unsafe { gpu.launch((source(s), &name), grid, args) };
}

/// Launches the backward kernels.
pub(super) fn backward(
    gpu: &GpuContext,
    s: &AttentionShape,
    extras: ExtraArguments,
    given: &Given,
    gradients: GradientViews,
) {
    let &Given { q, k, v, dout, lse, delta } = given;
    let GradientViews { dq, dk, dv } = gradients;
    let [of_keys, of_queries] =
        [("backward_keys", dk), ("backward_queries", dq)].map(|(pass, to)| name(pass, q, to));
    let [q, k, v, dout, lse, dq, dk, dv] = [q, k, v, dout, lse, dq, dk, dv].map(address);
    let sizes = AttentionSizes::new(s);
    let [head_dim, value_dim] = [s.head_dim, s.value_dim].map(|dim| dim as i32);

    let grid_of_keys = Grid {
        blocks: blocks(s, s.keys.len, s.kv_heads, TILE),
        ..plain_grid(gpu, s, BACKWARD_KEYS)
    };
    let args = args![q, k, v, dout, lse, delta, dk, dv, sizes, extras, head_dim, value_dim];
    // SAFETY: the views have the sizes of the shape.
    unsafe { gpu.launch((source(s), &of_keys), grid_of_keys, args) };

    let grid_of_queries = Grid {
        blocks: blocks(s, s.queries.len, s.heads, TILE),
        ..plain_grid(gpu, s, BACKWARD_QUERIES)
    };
    let args = args![q, k, v, dout, lse, delta, dq, sizes, extras, head_dim, value_dim];
    // SAFETY: as above.
    unsafe { gpu.launch((source(s), &of_queries), grid_of_queries, args) };
}

/// Returns the name of the kernel for operands of the dtype of `of`, with results of the dtype of `to`.
fn name(pass: &str, of: View, to: View) -> String {
    let [of, to] = [of, to].map(|view| float_name(view.dtype()));
    let name = format!("attention_plain_{pass}_{of}");
    if of == to { name } else { format!("{name}_{to}") }
}

/// Returns a grid whose blocks have these tiles in shared memory, with the number of blocks still unset.
pub(super) fn plain_grid(gpu: &GpuContext, s: &AttentionShape, tiles: PlainTiles) -> Grid {
    let dims = [s.head_dim, s.value_dim];
    check_tiles(gpu, dims, tiles).unwrap_or_else(|limit| panic!("attention: {limit}"));
    let shared = shared_bytes(dims, tiles) as u32;
    Grid { blocks: [0, 1, 1], threads: (TILE * TILE) as u32, shared }
}

/// Checks that blocks of all passes fit into the shared memory of the device, with heads of these elements of keys and
/// values.
pub(super) fn check_heads(gpu: &GpuContext, dims: [usize; 2]) -> Result<(), String> {
    [FORWARD, BACKWARD_KEYS, BACKWARD_QUERIES]
        .into_iter()
        .try_for_each(|tiles| check_tiles(gpu, dims, tiles))
}

fn check_tiles(gpu: &GpuContext, dims: [usize; 2], tiles: PlainTiles) -> Result<(), String> {
    let (shared, most) = (shared_bytes(dims, tiles), gpu.driver().properties().shared_memory);
    if shared <= most {
        return Ok(());
    }
    let [keys, values] = dims;
    Err(format!(
        "heads of {keys} elements, with values of {values}, need {shared} bytes of shared memory for a block, more \
         than the {most} of this device: use more, smaller heads"
    ))
}

fn shared_bytes([keys, values]: [usize; 2], tiles: PlainTiles) -> usize {
    let PlainTiles { of_keys, of_values, scores } = tiles;
    let row = of_keys * (keys | 1) + of_values * (values | 1) + scores * TILE;
    TILE * row * size_of::<f32>()
}

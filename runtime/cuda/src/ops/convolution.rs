//! Convolutions along a sequence.

use bytemuck::{Pod, Zeroable};

use super::launch::{THREADS, address, aligned, check_operand, covering, float_name, vector_width};
use super::partials::add_partials;
use crate::gpu::args;
use crate::kernels::CONVOLUTION;
use crate::{CudaBackend, Grid};
use meshwright_backend::ops::convolution::{CausalConvArgs, CausalConvWeightGradArgs, Neighbors};
use meshwright_backend::{CausalConvShape, ConvolutionOps, DType, UnfoldShape, View, ViewMut};

/// Channels of a block of the weight gradient, and taps that a thread sums, as in `kernels/convolution.cu`.
const TILE: u64 = 32;
const TAP_GROUP: u64 = 4;
/// Minimum rows of a part of the weight gradient, and number of blocks that keep memory busy.
const PART_ROWS: u64 = 64;
const BLOCKS: u64 = 256;

impl ConvolutionOps for CudaBackend {
    fn causal_conv(&self, s: &CausalConvShape, args: CausalConvArgs) {
        let CausalConvArgs { x, neighbors, weight, adjoint, y } = args;
        let (gpu, y) = (self.gpu(), y.as_view());
        s.check_operands(&[x, y], neighbors, weight.len());
        check_operand("weight", weight, x.dtype(), s.channels * s.taps);
        if y.is_empty() {
            return;
        }
        let width = vector_width(x.dtype());
        let operands = [Some(x), Some(y), neighbors.halo];
        let fits = operands.into_iter().flatten().all(|operand| aligned(&[operand], width));
        let vectors = fits && s.channels.is_multiple_of(width);
        let (form, width) = if vectors { ("_vectors", width) } else { ("", 1) };
        let direction = if adjoint { "adjoint" } else { "forward" };
        let name = format!("causal_conv_{direction}_{}{form}", float_name(x.dtype()));
        let grid = covering(gpu, (y.len() / width) as u64);
        let [halo, limits] = addresses(&neighbors);
        // SAFETY: the operands have the sizes that were checked, of the dtype and alignment in the name.
        unsafe {
            gpu.launch(
                (&CONVOLUTION, &name),
                grid,
                args![address(x), halo, limits, address(weight), address(y), ConvSizes::new(s)],
            )
        };
    }

    /// Sums over rows in two stages, the first over parts of them.
    fn causal_conv_weight_grad(&self, s: &CausalConvShape, args: CausalConvWeightGradArgs) {
        let CausalConvWeightGradArgs { x, dy, neighbors, dweight } = args;
        let gpu = self.gpu();
        s.check_operands(&[x, dy], neighbors, dweight.view.len());
        if s.channels == 0 {
            return;
        }
        let (rows, tiles) = (s.rows() as u64, (s.channels as u64).div_ceil(TILE));
        let parts = (rows / PART_ROWS).clamp(1, BLOCKS.div_ceil(tiles));
        let groups = (s.taps as u64).div_ceil(TAP_GROUP);
        let partial = gpu.workspace(parts as usize * dweight.view.len() * DType::F32.bytes());
        let blocks = [tiles, parts, groups].map(|blocks| blocks as u32);
        let grid = Grid { blocks, threads: THREADS, shared: 0 };
        let name = format!("causal_conv_weight_grad_{}", float_name(x.dtype()));
        let [halo, limits] = addresses(&neighbors);
        // SAFETY: the operands have the sizes that were checked, and the workspace a row of sums for each part, which
        // the first kernel writes.
        unsafe {
            let (x, dy) = (address(x), address(dy));
            gpu.launch(
                (&CONVOLUTION, &name),
                grid,
                args![x, dy, halo, limits, partial, ConvSizes::new(s)],
            );
            add_partials(gpu, [dweight], partial, parts);
        }
    }

    fn unfold(&self, shape: &UnfoldShape, x: View, out: ViewMut) {
        let out = out.as_view();
        assert_eq!([x.len(), out.len()], shape.elements(), "{shape:?}");
        assert_eq!(x.dtype(), out.dtype(), "unfold: operands of one dtype");
        self.launch_unfold("unfold", shape, x, out, out.len() / shape.taps);
    }

    fn fold(&self, shape: &UnfoldShape, dout: View, dx: ViewMut) {
        let dx = dx.as_view();
        assert_eq!([dx.len(), dout.len()], shape.elements(), "{shape:?}");
        assert_eq!(dx.dtype(), dout.dtype(), "fold: operands of one dtype");
        self.launch_unfold("fold", shape, dout, dx, dx.len());
    }
}

impl CudaBackend {
    /// Launches a kernel between an input and its unfolded elements, with a thread for each of `items`.
    fn launch_unfold(&self, name: &str, s: &UnfoldShape, from: View, to: View, items: usize) {
        if items == 0 {
            return;
        }
        let gpu = self.gpu();
        let name = format!("{name}_{}", float_name(from.dtype()));
        let outputs = s.output_len().unwrap_or(0);
        let sizes = [s.len, outputs, s.channels, s.taps, s.stride, s.padding, items];
        let sizes = UnfoldSizes { sizes: sizes.map(|size| size as u64) };
        // SAFETY: the operands have the sizes that were checked.
        unsafe {
            let grid = covering(gpu, items as u64);
            gpu.launch((&CONVOLUTION, &name), grid, args![address(from), address(to), sizes]);
        }
    }
}

/// Returns the addresses of the halo and the limits; 0 if there are none.
fn addresses(neighbors: &Neighbors<'_>) -> [u64; 2] {
    [neighbors.halo, neighbors.limits].map(|operand| operand.map_or(0, address))
}

/// `ConvSizes` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ConvSizes {
    rows: u64,
    positions: u64,
    channels: u64,
    taps: u64,
    ranges: u64,
    /// Positions of the first range.
    first_len: u64,
    starts: [u64; 2],
}

impl ConvSizes {
    fn new(s: &CausalConvShape) -> ConvSizes {
        ConvSizes {
            rows: s.rows() as u64,
            positions: s.positions() as u64,
            channels: s.channels as u64,
            taps: s.taps as u64,
            ranges: s.halo_ranges() as u64,
            first_len: s.ranges[0].len as u64,
            starts: s.ranges.map(|range| range.start as u64),
        }
    }
}

/// `UnfoldSizes` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct UnfoldSizes {
    sizes: [u64; 7],
}

//! Reductions over a dim and over whole operands.

use bytemuck::{Pod, Zeroable};

use crate::driver::{DriverCalls, unwrap_call};
use crate::gpu::args;
use crate::kernels::REDUCE;
use crate::{CudaBackend, GpuContext, Grid};
use meshwright_backend::StreamKind;
use meshwright_backend::{DType, LeafGrad, MiddleDim, ReductionOps, View, ViewMut};

use super::launch::{THREADS, address, aligned, covering, float_name, vector_width};
use super::partials::add_partials;

/// Number of blocks that keeps a device busy; fewer rows are summed in parts. A constant, since the order of a sum must
/// not depend on the device.
const BLOCKS: u64 = 1024;
/// Minimum elements of a part of a row.
const ROW_PART: u64 = 4096;
/// Minimum rows of a part of columns.
const COLUMN_PART: u64 = 64;
/// Number of blocks that keep memory busy while they sum columns, two per multiprocessor of the largest devices.
const COLUMN_BLOCKS: u64 = 256;
/// Minimum vectors per thread in a sum over a whole operand.
const VECTORS: u64 = 4;

impl ReductionOps for CudaBackend {
    /// Few sums of many elements are computed in two stages, the first over parts.
    fn sum_dim(&self, dim: MiddleDim, x: View, y: ViewMut, scale: f32) {
        let gpu = self.gpu();
        let MiddleDim { outer, len: n, inner } = dim;
        let y = y.as_view();
        assert_eq!((x.len(), y.len()), (outer * n * inner, outer * inner), "sum_dim: sizes");
        if y.is_empty() {
            return;
        }
        let [outer, n, inner] = [outer, n, inner].map(|size| size as u64);
        let sum = MiddleSum { outer, n, inner, x: address(x), dtype: x.dtype() };
        let parts = sum.parts();
        if parts == 1 {
            return sum.launch_sum(gpu, 1, address(y), y.dtype(), scale);
        }
        let partial = gpu.workspace((outer * parts * inner * 4) as usize);
        sum.launch_sum(gpu, parts, partial, DType::F32, 1.0);
        let sum = MiddleSum { outer, n: parts, inner, x: partial, dtype: DType::F32 };
        sum.launch_sum(gpu, 1, address(y), y.dtype(), scale);
    }

    fn broadcast_dim(&self, dim: MiddleDim, dy: View, dx: ViewMut, scale: f32) {
        let gpu = self.gpu();
        let MiddleDim { outer, len: n, inner } = dim;
        let dx = dx.as_view();
        assert_eq!(
            (dx.len(), dy.len()),
            (outer * n * inner, outer * inner),
            "broadcast_dim: sizes"
        );
        let dtypes = format!("{}_{}", float_name(dy.dtype()), float_name(dx.dtype()));
        let vector = vector_width(dx.dtype());
        // A vector is inside one row, or inside the copies of one element.
        let fits = match inner {
            1 => n.is_multiple_of(vector) && aligned(&[dx], vector),
            _ => inner.is_multiple_of(vector) && aligned(&[dx, dy], vector),
        };
        let vector = if fits { vector as u64 } else { 1 };
        let name = format!("broadcast_{dtypes}{}", vector_suffix(vector));
        let grid = covering(gpu, dx.len() as u64 / vector);
        let [outer, n, inner] = [outer, n, inner].map(|size| size as u64);
        // SAFETY: the operands have these sizes.
        unsafe {
            gpu.launch(
                (&REDUCE, &name),
                grid,
                args![outer, n, inner, address(dy), address(dx), scale],
            )
        };
    }

    fn sum_squares(&self, x: View) -> f64 {
        self.sum_squares_of(&[x])
    }

    /// Sums as many operands per launch as fit into its parameter, since a model has many small gradients. Blocks the
    /// host once, on the compute stream.
    fn sum_squares_of(&self, parts: &[View]) -> f64 {
        let gpu = self.gpu();
        let parts: Vec<View> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        let launches: Vec<Buffers> = parts
            .chunk_by(|a, b| a.dtype() == b.dtype())
            .flat_map(|alike| alike.chunks(MOST_BUFFERS).map(Buffers::new))
            .collect();
        let Some(most_blocks) = launches.iter().map(Buffers::blocks).max() else { return 0.0 };
        // The sums of all parts, followed by the sums of the blocks of one launch.
        let sums = gpu.workspace((parts.len() + most_blocks as usize) * 8);
        let block_sums = sums + parts.len() as u64 * 8;
        let mut done_parts = 0;
        for buffers in &launches {
            let name = format!("sum_squares_{}", float_name(parts[done_parts].dtype()));
            let grid = |blocks| Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
            let sum = sums + done_parts as u64 * 8;
            // SAFETY: there is room for the sum of every block, and of every part.
            unsafe {
                gpu.launch((&REDUCE, &name), grid(buffers.blocks()), args![*buffers, block_sums]);
                let args = args![*buffers, block_sums, sum];
                gpu.launch((&REDUCE, "sum_doubles"), grid(buffers.count), args);
            }
            done_parts += buffers.count as usize;
        }
        let mut of_parts = vec![0f64; parts.len()];
        gpu.capture.note_wait();
        let (driver, stream) = (gpu.driver(), gpu.stream(StreamKind::Compute));
        // SAFETY: the sums are in the workspace, and the numbers here are in place until the stream has passed.
        unwrap_call(unsafe {
            driver.download(stream, of_parts.as_mut_ptr().cast(), sums, 8 * of_parts.len())
        });
        unwrap_call(driver.synchronize(stream));
        of_parts.iter().sum()
    }
}

/// Writes or accumulates the sums of the columns of `x`, whose rows are as long as the sums.
pub(super) fn column_sums(gpu: &GpuContext, x: View, sums: LeafGrad) {
    let inner = sums.view.len();
    let n = (x.len() / inner) as u64;
    let sum = MiddleSum { outer: 1, n, inner: inner as u64, x: address(x), dtype: x.dtype() };
    let tiles = (inner as u64).div_ceil(32 * vector_width(x.dtype()) as u64);
    let parts = (n / COLUMN_PART).clamp(1, COLUMN_BLOCKS.div_ceil(tiles));
    let partial = gpu.workspace(parts as usize * inner * DType::F32.bytes());
    sum.launch_sum(gpu, parts, partial, DType::F32, 1.0);
    // SAFETY: the kernel before this one has written a row of sums for each part.
    unsafe { add_partials(gpu, [sums], partial, parts) };
}

/// A sum over the middle of `x[outer, n, inner]`.
pub(super) struct MiddleSum {
    pub(super) outer: u64,
    pub(super) n: u64,
    pub(super) inner: u64,
    pub(super) x: u64,
    pub(super) dtype: DType,
}

impl MiddleSum {
    /// Returns the elements per access of a thread: 128 bits if all rows are aligned to that, else one.
    fn vector(&self) -> u64 {
        let vector = vector_width(self.dtype) as u64;
        if self.inner.is_multiple_of(vector) && self.x.is_multiple_of(16) { vector } else { 1 }
    }

    /// Returns the number of blocks along x for each part.
    pub(super) fn blocks(&self, vector: u64) -> u64 {
        if self.inner == 1 { self.outer } else { self.outer * self.inner.div_ceil(32 * vector) }
    }

    /// Returns the number of parts of the middle dim that are summed separately: a function of the sizes alone.
    pub(super) fn parts(&self) -> u64 {
        let least = if self.inner == 1 { ROW_PART } else { COLUMN_PART };
        (self.n / least).min(BLOCKS / self.blocks(1)).max(1)
    }

    pub(super) fn launch_sum(&self, gpu: &GpuContext, parts: u64, y: u64, to: DType, scale: f32) {
        let &MiddleSum { outer, n, inner, x, dtype } = self;
        let dtypes = format!("{}_{}", float_name(dtype), float_name(to));
        let vector = self.vector();
        let blocks = self.blocks(vector).min(i32::MAX as u64) as u32;
        let grid = Grid { blocks: [blocks, parts as u32, 1], threads: THREADS, shared: 0 };
        // SAFETY: `x` has these sizes, and `y` an element for each sum and part.
        unsafe {
            if inner == 1 {
                let name = format!("sum_rows_{dtypes}");
                gpu.launch((&REDUCE, &name), grid, args![x, outer, n, y, scale]);
            } else {
                let name = format!("sum_columns_{dtypes}{}", vector_suffix(vector));
                gpu.launch((&REDUCE, &name), grid, args![x, outer, n, inner, y, scale]);
            }
        }
    }
}

/// Returns the suffix of the name of a kernel with vectors of this many elements.
fn vector_suffix(vector: u64) -> &'static str {
    if vector > 1 { "_vectors" } else { "" }
}

/// Maximum number of buffers per launch, as in `kernels/reduce.cu`.
const MOST_BUFFERS: usize = 64;

/// `Buffers` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Buffers {
    x: [u64; MOST_BUFFERS],
    n: [u64; MOST_BUFFERS],
    end_block: [u32; MOST_BUFFERS],
    count: u32,
    /// Pads the size to a multiple of 8 bytes.
    padding: u32,
}

impl Buffers {
    /// Creates the parameter for at most [`MOST_BUFFERS`] operands of one dtype.
    fn new(parts: &[View]) -> Buffers {
        let mut buffers = Buffers { count: parts.len() as u32, ..Buffers::zeroed() };
        let mut blocks = 0;
        for (index, part) in parts.iter().enumerate() {
            blocks += blocks_of(part) as u32;
            (buffers.x[index], buffers.n[index]) = (address(*part), part.len() as u64);
            buffers.end_block[index] = blocks;
        }
        buffers
    }

    /// Returns the number of blocks of all buffers.
    fn blocks(&self) -> u32 {
        self.end_block[self.count as usize - 1]
    }
}

/// Returns the number of blocks that sum a part: a function of its length alone, as is the work of each thread.
fn blocks_of(part: &View) -> u64 {
    let vector = vector_width(part.dtype()) as u64;
    (part.len() as u64).div_ceil(u64::from(THREADS) * vector * VECTORS).min(BLOCKS)
}

//! Sums over a dim, and over everything.

use bytemuck::{Pod, Zeroable};

use crate::backend::Queue;
use crate::backend::cuda::gpu::{args, done};
use crate::backend::cuda::kernels::REDUCE;
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, View, ViewMut};

use super::launch::{THREADS, aligned, at, covering, float_name, wide};

/// Blocks that keep a device busy; fewer rows than that are summed in parts. Not asked of the device, on which the order
/// of a sum must not depend.
const BLOCKS: u64 = 1024;
/// Least elements of one part of a row.
const ROW_PART: u64 = 4096;
/// Least rows of one part of columns.
const COLUMN_PART: u64 = 64;
/// Least vectors of each thread in a sum over everything.
const VECTORS: u64 = 4;

/// See [`Backend::sum_dim`](crate::backend::Backend::sum_dim).
///
/// Where there are few sums of many elements, sums of parts come first.
pub fn sum_dim(gpu: &Gpu, outer: usize, n: usize, inner: usize, x: View, y: ViewMut, scale: f32) {
    let y = y.as_view();
    assert_eq!((x.len(), y.len()), (outer * n * inner, outer * inner), "sum_dim: sizes");
    if y.is_empty() {
        return;
    }
    let [outer, n, inner] = [outer, n, inner].map(|size| size as u64);
    let sum = Sum { outer, n, inner, x: at(x), dtype: x.dtype() };
    let parts = sum.parts();
    if parts == 1 {
        return sum.launch(gpu, 1, at(y), y.dtype(), scale);
    }
    let partial = gpu.workspace((outer * parts * inner * 4) as usize);
    sum.launch(gpu, parts, partial, DType::F32, 1.0);
    let sum = Sum { outer, n: parts, inner, x: partial, dtype: DType::F32 };
    sum.launch(gpu, 1, at(y), y.dtype(), scale);
}

/// A sum over the middle of `x[outer, n, inner]`.
struct Sum {
    outer: u64,
    n: u64,
    inner: u64,
    x: u64,
    dtype: DType,
}

impl Sum {
    /// Elements that a thread takes at once: of 128 bits, where all rows are aligned to that.
    fn vector(&self) -> u64 {
        let vector = wide(self.dtype) as u64;
        if self.inner.is_multiple_of(vector) && self.x.is_multiple_of(16) { vector } else { 1 }
    }

    /// Blocks along x for each part.
    fn blocks(&self, vector: u64) -> u64 {
        if self.inner == 1 { self.outer } else { self.outer * self.inner.div_ceil(32 * vector) }
    }

    /// Parts of the middle that are summed apart: a function of the sizes alone.
    fn parts(&self) -> u64 {
        let least = if self.inner == 1 { ROW_PART } else { COLUMN_PART };
        (self.n / least).min(BLOCKS / self.blocks(1)).max(1)
    }

    fn launch(&self, gpu: &Gpu, parts: u64, y: u64, to: DType, scale: f32) {
        let &Sum { outer, n, inner, x, dtype } = self;
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
                let name = format!("sum_columns_{dtypes}{}", suffix(vector));
                gpu.launch((&REDUCE, &name), grid, args![x, outer, n, inner, y, scale]);
            }
        }
    }
}

/// The last part of the name of a kernel that takes vectors of so many elements.
fn suffix(vector: u64) -> &'static str {
    if vector > 1 { "_vectors" } else { "" }
}

/// See [`Backend::broadcast_dim`](crate::backend::Backend::broadcast_dim).
pub fn broadcast_dim(
    gpu: &Gpu,
    outer: usize,
    n: usize,
    inner: usize,
    dy: View,
    dx: ViewMut,
    scale: f32,
) {
    let dx = dx.as_view();
    assert_eq!((dx.len(), dy.len()), (outer * n * inner, outer * inner), "broadcast_dim: sizes");
    let dtypes = format!("{}_{}", float_name(dy.dtype()), float_name(dx.dtype()));
    let vector = wide(dx.dtype());
    // A vector lies in one row, or in the copies of one element.
    let fits = match inner {
        1 => n.is_multiple_of(vector) && aligned(&[dx], vector),
        _ => inner.is_multiple_of(vector) && aligned(&[dx, dy], vector),
    };
    let vector = if fits { vector as u64 } else { 1 };
    let name = format!("broadcast_{dtypes}{}", suffix(vector));
    let grid = covering(gpu, dx.len() as u64 / vector);
    let [outer, n, inner] = [outer, n, inner].map(|size| size as u64);
    // SAFETY: the operands have these sizes.
    unsafe { gpu.launch((&REDUCE, &name), grid, args![outer, n, inner, at(dy), at(dx), scale]) };
}

/// See [`Backend::sum_squares_of`](crate::backend::Backend::sum_squares_of). It waits for the compute queue, once.
///
/// A model has many gradients, most of them small: each launch sums as many as its parameter has room for.
pub fn sum_squares_of(gpu: &Gpu, parts: &[View]) -> f64 {
    let parts: Vec<View> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    let launches: Vec<Buffers> = parts
        .chunk_by(|a, b| a.dtype() == b.dtype())
        .flat_map(|alike| alike.chunks(MOST_BUFFERS).map(Buffers::new))
        .collect();
    let Some(most_blocks) = launches.iter().map(Buffers::blocks).max() else { return 0.0 };
    // The sums of all parts, and behind them those of the blocks of one launch at a time.
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
    let (driver, stream) = (gpu.driver(), gpu.stream(Queue::Compute));
    // SAFETY: the sums are in the workspace, and the numbers here are in place until the stream has passed.
    done(unsafe {
        driver.download(stream, of_parts.as_mut_ptr().cast(), sums, 8 * of_parts.len())
    });
    done(driver.synchronize(stream));
    of_parts.iter().sum()
}

/// Buffers of one launch, as in `kernels/reduce.cu`.
const MOST_BUFFERS: usize = 64;

/// `Buffers` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Buffers {
    x: [u64; MOST_BUFFERS],
    n: [u64; MOST_BUFFERS],
    end_block: [u32; MOST_BUFFERS],
    count: u32,
    /// To a multiple of 8 bytes.
    padding: u32,
}

impl Buffers {
    /// Of one dtype, at most [`MOST_BUFFERS`].
    fn new(parts: &[View]) -> Buffers {
        let mut buffers = Buffers { count: parts.len() as u32, ..Buffers::zeroed() };
        let mut blocks = 0;
        for (index, part) in parts.iter().enumerate() {
            blocks += blocks_of(part) as u32;
            (buffers.x[index], buffers.n[index]) = (at(*part), part.len() as u64);
            buffers.end_block[index] = blocks;
        }
        buffers
    }

    /// Blocks of all of them.
    fn blocks(&self) -> u32 {
        self.end_block[self.count as usize - 1]
    }
}

/// Blocks that a part is summed by: a function of its length alone, as is what each thread of them adds.
fn blocks_of(part: &View) -> u64 {
    let vector = wide(part.dtype()) as u64;
    (part.len() as u64).div_ceil(u64::from(THREADS) * vector * VECTORS).min(BLOCKS)
}

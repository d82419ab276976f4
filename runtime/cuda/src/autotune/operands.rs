//! Synthetic operands for autotuning.

use std::ffi::c_void;

use crate::driver::{Driver, DriverCalls, DriverError, Grid, Stream};
use crate::gpu::args;
use crate::kernels::AUTOTUNE;
use crate::matmul::{MatMul, MatMulEpilogue, MatMulOperands};
use meshwright_backend::DType;

/// Alignment of operands, in bytes.
const ALIGNMENT: usize = 256;

/// Divisor of the free device memory that autotuning may use, because other ranks allocate concurrently.
const FREE_MEMORY_DIVISOR: usize = 2;

/// More than the L2 cache of a GPU. Rotating through operand sets of this total size makes a matmul find as little of
/// its operands in the cache as in a training step.
const ROTATION_BYTES: usize = 64 << 20;

/// Maximum number of operand sets.
const MAX_SETS: usize = 3;

/// Threads per block.
const THREADS: u32 = 256;

/// Maximum blocks per launch.
const MAX_BLOCKS: u64 = 4096;

/// Device memory for the operand sets, the results of the first algorithm, and a comparison flag.
pub struct AutotuneOperands<'a> {
    driver: &'a dyn Driver,
    stream: Stream,
    shape: MatMul,
    start: u64,
    bytes: usize,
    sets: Vec<MatMulOperands>,
    /// The first operand set, with a result of its own.
    first: MatMulOperands,
    flag: u64,
}

/// Pattern that fills an operand; see the kernels.
struct Pattern {
    key: u64,
    stride: usize,
    terms: usize,
    opposed: bool,
    exponent: i32,
}

/// Initial values of accumulated results and biases: small relative to 1, as the sums are, or else bf16 would round the
/// sums away.
const SMALL_VALUES: Pattern =
    Pattern { key: 3, stride: 1, terms: 1, opposed: false, exponent: -10 };

impl<'a> AutotuneOperands<'a> {
    /// Allocates operands for matmuls of a shape and fills all inputs; `None` if too little device memory is free.
    pub fn new(
        driver: &'a dyn Driver,
        stream: Stream,
        shape: &MatMul,
    ) -> Result<Option<AutotuneOperands<'a>>, DriverError> {
        let gemm = &shape.gemm;
        let of =
            |dtype: DType, elements: usize| (elements * dtype.bytes()).next_multiple_of(ALIGNMENT);
        let (a, b) = (of(shape.inputs, gemm.m * gemm.k), of(shape.inputs, gemm.k * gemm.n));
        let c = of(shape.result, gemm.m * gemm.n);
        let has_bias = shape.epilogue != MatMulEpilogue::Plain;
        let bias = if has_bias { of(shape.result, gemm.n) } else { 0 };
        let aux = if shape.epilogue == (MatMulEpilogue::BiasGelu { aux: true }) { c } else { 0 };
        let (set, rest) = (a + b + c + bias + aux, c + ALIGNMENT);
        let most = driver.free_memory()? / FREE_MEMORY_DIVISOR;
        let fitting = (1..=set_count(set)).rev().find(|sets| sets * set + rest <= most);
        let Some(sets) = fitting else { return Ok(None) };
        let bytes = sets * set + rest;
        let start = match driver.alloc(bytes) {
            Err(DriverError::OutOfMemory { .. }) => return Ok(None),
            result => result?,
        };
        let at = |offset: usize| start + offset as u64;
        let sets: Vec<_> = (0..sets)
            .map(|number| MatMulOperands {
                a: at(number * set),
                b: at(number * set + a),
                c: at(number * set + a + b),
                bias: at(number * set + a + b + c),
                aux: at(number * set + a + b + c + bias),
            })
            .collect();
        let after = sets.len() * set;
        let first = MatMulOperands { c: at(after), ..sets[0] };
        let (shape, flag) = (*shape, at(bytes - ALIGNMENT));
        let operands = AutotuneOperands { driver, stream, shape, start, bytes, sets, first, flag };
        for set in &operands.sets {
            operands.fill_inputs(set)?;
            if has_bias {
                operands.fill_operand(shape.result, set.bias, gemm.n, &SMALL_VALUES)?;
            }
        }
        Ok(Some(operands))
    }

    /// Returns the operands for one algorithm; the first one gets results of its own, for comparison with the others.
    /// Accumulated results start from the same values for all.
    pub fn comparison_operands(&self, first: bool) -> Result<MatMulOperands, DriverError> {
        let operands = if first { self.first } else { self.sets[0] };
        if self.shape.gemm.accumulate {
            self.fill_operand(self.shape.result, operands.c, self.results_len(), &SMALL_VALUES)?;
        }
        Ok(operands)
    }

    /// Returns the operands of a timed launch, whose result is not read: all sets in turn.
    pub fn rotated_operands(&self, launch: usize) -> &MatMulOperands {
        &self.sets[launch % self.sets.len()]
    }

    /// Returns true if the last result is bitwise equal to that of the first algorithm. Synchronizes the stream.
    pub fn is_bitwise_equal(&self) -> Result<bool, DriverError> {
        let (first, last) = (&self.first, &self.sets[0]);
        // The kernel compares units of two bytes.
        let units = (self.results_len() * self.shape.result.bytes() / 2) as u64;
        let mut differ = 0u32;
        // SAFETY: both results and the flag are in memory that lives as long as `self`, and `differ` is valid until the
        // stream is synchronized below.
        unsafe {
            self.driver.zero(self.stream, self.flag, size_of_val(&differ))?;
            let args = args![first.c, last.c, units, self.flag];
            self.launch_kernel("autotune_difference", units, args)?;
            let to = (&raw mut differ).cast::<c_void>();
            self.driver.download(self.stream, to, self.flag, size_of_val(&differ))?;
        }
        self.driver.synchronize(self.stream)?;
        Ok(differ == 0)
    }

    fn results_len(&self) -> usize {
        self.shape.gemm.m * self.shape.gemm.n
    }

    fn fill_inputs(&self, set: &MatMulOperands) -> Result<(), DriverError> {
        let gemm = &self.shape.gemm;
        let pattern = |key, columns: usize, contracts_rows: bool, opposed| {
            let stride = if contracts_rows { columns } else { 1 };
            Pattern { key, stride, terms: gemm.k, opposed, exponent: 0 }
        };
        let a = if gemm.trans_a {
            pattern(1, gemm.m, true, true)
        } else {
            pattern(1, gemm.k, false, true)
        };
        let b = if gemm.trans_b {
            pattern(2, gemm.k, false, false)
        } else {
            pattern(2, gemm.n, true, false)
        };
        self.fill_operand(self.shape.inputs, set.a, gemm.m * gemm.k, &a)?;
        self.fill_operand(self.shape.inputs, set.b, gemm.k * gemm.n, &b)
    }

    fn fill_operand(
        &self,
        dtype: DType,
        at: u64,
        len: usize,
        with: &Pattern,
    ) -> Result<(), DriverError> {
        let (n, stride, terms) = (len as u64, with.stride as u64, with.terms as u64);
        let opposed = u32::from(with.opposed);
        let args = args![at, n, with.key, stride, terms, opposed, with.exponent];
        // SAFETY: the operand has `len` elements of the dtype, in memory that lives as long as `self`.
        unsafe { self.launch_kernel(&format!("autotune_operand_{dtype}"), n, args) }
    }

    /// # Safety
    /// As [`Launch`](crate::GpuCall::Launch).
    unsafe fn launch_kernel(
        &self,
        kernel: &str,
        items: u64,
        args: &[&[u8]],
    ) -> Result<(), DriverError> {
        let function = self.driver.function(self.driver.load(&AUTOTUNE)?, kernel)?;
        let blocks = items.div_ceil(u64::from(THREADS)).min(MAX_BLOCKS) as u32;
        let grid = Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
        // SAFETY: as the caller promises.
        unsafe { self.driver.launch(self.stream, function, grid, args) }
    }
}

impl Drop for AutotuneOperands<'_> {
    fn drop(&mut self) {
        // A failed device has no pending work that uses the memory. Errors cannot be handled here.
        let _ = self.driver.synchronize(self.stream);
        // SAFETY: these bytes were allocated, and the only stream that uses them is synchronized.
        let _ = unsafe { self.driver.free(self.start, self.bytes) };
    }
}

/// Returns the number of operand sets to rotate through, given the size of one set in bytes.
fn set_count(bytes: usize) -> usize {
    ROTATION_BYTES.div_ceil(bytes).clamp(1, MAX_SETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_operands_rotate() {
        assert_eq!([200 << 20, 64 << 20, 40 << 20, 1 << 20, 1].map(set_count), [1, 1, 2, 3, 3]);
    }
}

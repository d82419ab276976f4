//! Operands to try products on.

use std::ffi::c_void;

use crate::backend::DType;
use crate::backend::cuda::driver::{
    Driver, DriverError, Ending, Grid, MatMul, MatMulOperands, Stream,
};
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::TRIAL;

/// Operands begin at multiples of this many bytes.
const UNIT: usize = 256;

/// The part of the unused memory that trials may take: others allocate at the same time.
const SHARE: usize = 2;

/// More than the second-level cache of a GPU holds. Where sets of operands that are used in turn have as many bytes, a
/// product finds in it no more of its own than in a training step.
const CACHE: usize = 64 << 20;

/// The most sets of operands.
const MOST_SETS: usize = 3;

/// Threads of a block.
const THREADS: u32 = 256;

/// The most blocks of a launch.
const MOST_BLOCKS: u64 = 4096;

/// Room for sets of operands, the result of the first trial and what its ending writes, and a flag.
pub struct Scratch<'a> {
    driver: &'a dyn Driver,
    stream: Stream,
    shape: MatMul,
    start: u64,
    bytes: usize,
    sets: Vec<MatMulOperands>,
    /// The first set, with a result and a vector of its own.
    first: MatMulOperands,
    flag: u64,
}

/// The pattern that fills an operand: see the kernels.
struct Pattern {
    key: u64,
    stride: usize,
    terms: usize,
    opposed: bool,
    exponent: i32,
}

/// What is added to sums: small beside 1, as they are, or else bf16 would show nothing of them.
const SMALL: Pattern = Pattern { key: 3, stride: 1, terms: 1, opposed: false, exponent: -10 };

impl<'a> Scratch<'a> {
    /// For products of a shape, with the factors of all sets filled; none where too little memory is unused.
    pub fn new(
        driver: &'a dyn Driver,
        stream: Stream,
        shape: &MatMul,
    ) -> Result<Option<Scratch<'a>>, DriverError> {
        let gemm = &shape.gemm;
        let of = |dtype: DType, elements: usize| (elements * dtype.bytes()).next_multiple_of(UNIT);
        let (a, b) = (of(shape.factors, gemm.m * gemm.k), of(shape.factors, gemm.k * gemm.n));
        let c = of(shape.result, gemm.m * gemm.n);
        // f32 is the widest that they can be.
        let vector = if shape.ending == Ending::Plain { 0 } else { of(DType::F32, gemm.n) };
        let inside = if shape.ending == (Ending::BiasGelu { keeps: true }) { c } else { 0 };
        let (set, beside) = (a + b + c + vector + inside, c + vector + UNIT);
        let most = driver.free_memory()? / SHARE;
        let fitting = (1..=sets_of(set)).rev().find(|sets| sets * set + beside <= most);
        let Some(sets) = fitting else { return Ok(None) };
        let bytes = sets * set + beside;
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
                vector: at(number * set + a + b + c),
                inside: at(number * set + a + b + c + vector),
            })
            .collect();
        let after = sets.len() * set;
        let first = MatMulOperands { c: at(after), vector: at(after + c), ..sets[0] };
        let (shape, flag) = (*shape, at(bytes - UNIT));
        let scratch = Scratch { driver, stream, shape, start, bytes, sets, first, flag };
        for set in &scratch.sets {
            scratch.fill_factors(set)?;
        }
        if let Ending::Bias | Ending::BiasGelu { .. } = shape.ending {
            for set in scratch.sets.iter().chain([&scratch.first]) {
                scratch.fill(shape.result, set.vector, gemm.n, &SMALL)?;
            }
        }
        Ok(Some(scratch))
    }

    /// Where the operands of one trial lie; the first has results of its own, which those of others are compared with. What
    /// is added to is the same for all.
    pub fn operands(&self, first: bool) -> Result<MatMulOperands, DriverError> {
        let operands = if first { self.first } else { self.sets[0] };
        if self.shape.gemm.accumulate {
            self.fill(self.shape.result, operands.c, self.results_len(), &SMALL)?;
        }
        Ok(operands)
    }

    /// Where the operands of a launch lie whose result nobody looks at: all sets in turn.
    pub fn rotated(&self, launch: usize) -> &MatMulOperands {
        &self.sets[launch % self.sets.len()]
    }

    /// Whether the result of the last trial has the bits of that of the first. Waits for the stream.
    pub fn is_alike(&self) -> Result<bool, DriverError> {
        let bytes = self.results_len() * self.shape.result.bytes();
        let (first, last) = (&self.first, &self.sets[0]);
        let mut compared = vec![([first.c, last.c], bytes)];
        if self.shape.ending == Ending::Sums {
            compared.push(([first.vector, last.vector], self.shape.gemm.n * DType::F32.bytes()));
        }
        let mut differ = 0u32;
        // SAFETY: both results and the flag lie in memory that lives as long as `self`, and `differ` is in place until the
        // stream has passed.
        unsafe {
            self.driver.zero(self.stream, self.flag, size_of_val(&differ))?;
            for ([first, last], bytes) in compared {
                let units = (bytes / 2) as u64;
                self.launch("trial_difference", units, args![first, last, units, self.flag])?;
            }
            let to = (&raw mut differ).cast::<c_void>();
            self.driver.download(self.stream, to, self.flag, size_of_val(&differ))?;
        }
        self.driver.synchronize(self.stream)?;
        Ok(differ == 0)
    }

    fn results_len(&self) -> usize {
        self.shape.gemm.m * self.shape.gemm.n
    }

    fn fill_factors(&self, set: &MatMulOperands) -> Result<(), DriverError> {
        let gemm = &self.shape.gemm;
        let pattern = |key, columns: usize, contracts_rows: bool, opposed| {
            let stride = if contracts_rows { columns } else { 1 };
            Pattern { key, stride, terms: gemm.k, opposed, exponent: 0 }
        };
        let a = match gemm.trans_a {
            true => pattern(1, gemm.m, true, true),
            false => pattern(1, gemm.k, false, true),
        };
        let b = match gemm.trans_b {
            true => pattern(2, gemm.k, false, false),
            false => pattern(2, gemm.n, true, false),
        };
        self.fill(self.shape.factors, set.a, gemm.m * gemm.k, &a)?;
        self.fill(self.shape.factors, set.b, gemm.k * gemm.n, &b)
    }

    fn fill(&self, dtype: DType, at: u64, len: usize, with: &Pattern) -> Result<(), DriverError> {
        let (n, stride, terms) = (len as u64, with.stride as u64, with.terms as u64);
        let opposed = u32::from(with.opposed);
        let args = args![at, n, with.key, stride, terms, opposed, with.exponent];
        // SAFETY: the operand has as many elements of the dtype, in memory that lives as long as `self`.
        unsafe { self.launch(&format!("trial_operand_{dtype}"), n, args) }
    }

    /// # Safety
    /// As [`Driver::launch`].
    unsafe fn launch(&self, kernel: &str, items: u64, args: &[&[u8]]) -> Result<(), DriverError> {
        let function = self.driver.function(self.driver.load(&TRIAL)?, kernel)?;
        let blocks = items.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
        let grid = Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
        // SAFETY: as the caller promises.
        unsafe { self.driver.launch(self.stream, function, grid, args) }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // A device that has failed has no work left that uses the memory. Nobody could act on an error.
        let _ = self.driver.synchronize(self.stream);
        // SAFETY: these bytes were allocated, and the only stream that uses them is done.
        let _ = unsafe { self.driver.free(self.start, self.bytes) };
    }
}

/// How many sets of operands of so many bytes are used in turn.
fn sets_of(bytes: usize) -> usize {
    CACHE.div_ceil(bytes).clamp(1, MOST_SETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_operands_rotate() {
        assert_eq!([200 << 20, 64 << 20, 40 << 20, 1 << 20, 1].map(sets_of), [1, 1, 2, 3, 3]);
    }
}

//! What streams do: kernels, copies and products.

use std::sync::Arc;

use meshwright::backend::cuda::{DriverError, Grid, MatMul, MatMulOperands};

use crate::kernel::{Arguments, Failure, Kernel};
use crate::memory::{Memory, failure};
use crate::product::multiply;

/// Work that has been submitted. Whoever submitted it promised, as [`Driver`](meshwright::backend::cuda::Driver) asks,
/// that host memory is in place when it is done; device addresses are checked.
pub(crate) enum Task {
    Upload { dst: u64, src: usize, bytes: usize },
    Download { dst: usize, src: u64, bytes: usize },
    Copy { dst: u64, src: u64, bytes: usize },
    Zero { dst: u64, bytes: usize },
    Launch { kernel: Kernel, grid: Grid, args: Arguments },
    MatMul { shape: MatMul, operands: MatMulOperands },
    Other(Work),
}

/// Work of another library.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

impl Task {
    /// Does the work.
    pub(crate) fn run(&self, memory: &Memory, seed: u64) -> Result<(), DriverError> {
        match self {
            &Task::Upload { dst, src, bytes } => {
                memory.require(dst, bytes).map_err(|reason| failure("upload", reason))?;
                // SAFETY: the destination is live, and the source is as the caller of `upload` promised.
                unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes) };
            }
            &Task::Download { dst, src, bytes } => {
                memory.require(src, bytes).map_err(|reason| failure("download", reason))?;
                // SAFETY: as above, the other way round.
                unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes) };
            }
            &Task::Copy { dst, src, bytes } => {
                let live = memory.require(dst, bytes).and(memory.require(src, bytes));
                live.map_err(|reason| failure("copy", reason))?;
                if dst.abs_diff(src) < bytes as u64 {
                    return Err(failure("copy", "source and destination overlap".to_string()));
                }
                // SAFETY: both are live and do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes) };
            }
            &Task::Zero { dst, bytes } => {
                memory.require(dst, bytes).map_err(|reason| failure("zero", reason))?;
                // SAFETY: the destination is live.
                unsafe { std::ptr::write_bytes(dst as *mut u8, 0, bytes) };
            }
            Task::Launch { kernel, grid, args } => {
                // SAFETY: sizes of parameters were checked, and the rest is as the caller of `launch` promised.
                let result = unsafe { kernel.run(grid, args, seed) };
                result.map_err(|error| failure("launch", described(memory, error)))?;
                memory.check().map_err(|reason| {
                    failure("launch", format!("kernel `{}`: {reason}", kernel.name))
                })?;
            }
            Task::MatMul { shape, operands } => {
                multiply(memory, shape, operands).map_err(|reason| failure("matmul", reason))?;
            }
            Task::Other(work) => work(),
        }
        Ok(())
    }
}

/// What went wrong in a kernel, and what is near the memory that it used.
fn described(memory: &Memory, error: Failure) -> String {
    match error.address {
        None => error.message,
        Some(address) => format!("{}, {}", error.message, memory.describe(address)),
    }
}

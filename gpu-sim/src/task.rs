//! Tasks of streams: kernels, copies and matmuls.

use std::sync::Arc;

use meshwright_cuda::{DriverError, Grid, MatMul, MatMulOperands};

use crate::kernel::{Arguments, Failure, Kernel};
use crate::matmul::compute_matmul;
use crate::memory::{Memory, failure};

/// Submitted work. The submitter guarantees, as [`Driver`](meshwright_cuda::Driver) requires, that host
/// memory is valid when it executes; device addresses are checked.
pub(crate) enum Task {
    Upload {
        dst: u64,
        src: usize,
        bytes: usize,
    },
    Download {
        dst: usize,
        src: u64,
        bytes: usize,
    },
    Copy {
        dst: u64,
        src: u64,
        bytes: usize,
    },
    Zero {
        dst: u64,
        bytes: usize,
    },
    Launch {
        kernel: Kernel,
        grid: Grid,
        args: Arguments,
    },
    MatMul {
        shape: MatMul,
        operands: MatMulOperands,
    },
    Other(Work),
    /// Work that the stream waits for until the condition holds.
    When(Condition, Work),
}

/// Work of another library.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

/// A condition of another library.
pub(crate) type Condition = Arc<dyn Fn() -> bool + Send + Sync>;

impl Task {
    /// Returns false if the task waits for an event outside of the device.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Task::When(condition, _) => condition(),
            _ => true,
        }
    }

    /// Executes the task.
    pub(crate) fn run(&self, memory: &Memory, seed: u64) -> Result<(), DriverError> {
        match self {
            &Task::Upload { dst, src, bytes } => {
                memory.require(dst, bytes).map_err(|reason| failure("upload", reason))?;
                // SAFETY: the destination is live, and the caller of `upload` guarantees the source.
                unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes) };
            }
            &Task::Download { dst, src, bytes } => {
                memory.require(src, bytes).map_err(|reason| failure("download", reason))?;
                // SAFETY: as above, in the other direction.
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
                // SAFETY: parameter sizes are checked; the caller of `launch` guarantees the rest.
                let result = unsafe { kernel.run(grid, args, seed) };
                result.map_err(|error| failure("launch", described(memory, error)))?;
                memory.check().map_err(|reason| {
                    failure("launch", format!("kernel `{}`: {reason}", kernel.name))
                })?;
            }
            Task::MatMul { shape, operands } => {
                compute_matmul(memory, shape, operands)
                    .map_err(|reason| failure("matmul", reason))?;
            }
            Task::Other(work) | Task::When(_, work) => work(),
        }
        Ok(())
    }
}

/// Describes a kernel failure and the surroundings of the invalid address.
fn described(memory: &Memory, error: Failure) -> String {
    match error.address {
        None => error.message,
        Some(address) => format!("{}, {}", error.message, memory.describe(address)),
    }
}

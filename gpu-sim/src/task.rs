//! What streams do: kernels, copies and products.

use std::sync::{Arc, OnceLock};

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::cuda::{DriverError, Grid, MatMul};
use meshwright::backend::{Backend, DType, Element, View, ViewMut};

use crate::kernel::{Arguments, Failure, Kernel};
use crate::memory::{Memory, failure};

/// Work that has been submitted. Whoever submitted it promised, as [`Driver`](meshwright::backend::cuda::Driver) asks,
/// that host memory is in place when it is done; device addresses are checked.
pub(crate) enum Task {
    Upload { dst: u64, src: usize, bytes: usize },
    Download { dst: usize, src: u64, bytes: usize },
    Copy { dst: u64, src: u64, bytes: usize },
    Zero { dst: u64, bytes: usize },
    Launch { kernel: Kernel, grid: Grid, args: Arguments },
    MatMul { shape: MatMul, a: u64, b: u64, c: u64 },
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
            Task::MatMul { shape, a, b, c } => {
                multiply(memory, shape, *a, *b, *c).map_err(|reason| failure("matmul", reason))?;
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

fn multiply(memory: &Memory, shape: &MatMul, a: u64, b: u64, c: u64) -> Result<(), String> {
    let g = &shape.gemm;
    memory.require(a, g.m * g.k * shape.factors.bytes())?;
    memory.require(b, g.k * g.n * shape.factors.bytes())?;
    memory.require(c, g.m * g.n * shape.result.bytes())?;
    let cpu = cpu()?;
    // SAFETY: the operands are live, and the caller of `matmul` promised that nothing else uses what is written.
    unsafe {
        match (shape.factors, shape.result) {
            (DType::F32, DType::F32) => cpu.gemm(
                g,
                read::<f32>(a, g.m * g.k),
                read::<f32>(b, g.k * g.n),
                write::<f32>(c, g.m * g.n),
            ),
            (DType::Bf16, DType::F32) => cpu.gemm(
                g,
                read::<bf16>(a, g.m * g.k),
                read::<bf16>(b, g.k * g.n),
                write::<f32>(c, g.m * g.n),
            ),
            (DType::Bf16, DType::Bf16) => cpu.gemm(
                g,
                read::<bf16>(a, g.m * g.k),
                read::<bf16>(b, g.k * g.n),
                write::<bf16>(c, g.m * g.n),
            ),
            (factors, result) => {
                return Err(format!("no product of {factors} factors has a result of {result}"));
            }
        }
    }
    Ok(())
}

/// The products of every simulated device.
fn cpu() -> Result<&'static CpuBackend, String> {
    static CPU: OnceLock<Result<CpuBackend, String>> = OnceLock::new();
    CPU.get_or_init(|| CpuBackend::new(1).map_err(|error| error.to_string()))
        .as_ref()
        .map_err(String::clone)
}

/// # Safety
/// There are `len` live elements.
unsafe fn read<'a, T: Element>(address: u64, len: usize) -> View<'a> {
    if len == 0 {
        return View::from(&[] as &[T]);
    }
    // SAFETY: as the caller promises.
    View::from(unsafe { std::slice::from_raw_parts(address as *const T, len) })
}

/// # Safety
/// As [`read`], and nothing else uses them.
unsafe fn write<'a, T: Element>(address: u64, len: usize) -> ViewMut<'a> {
    if len == 0 {
        return ViewMut::from(&mut [] as &mut [T]);
    }
    // SAFETY: as the caller promises.
    ViewMut::from(unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) })
}

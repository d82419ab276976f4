//! Matrix products, with what is done beside.

use std::sync::OnceLock;

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::cuda::{Ending, MatMul, MatMulOperands};
use meshwright::backend::{DType, Element, Gemm, MatmulOps, View, ViewMut};

use crate::memory::Memory;

/// Computes a product and its ending as the vendor's library does: sums in f32, which are rounded last.
pub(crate) fn multiply(
    memory: &Memory,
    shape: &MatMul,
    operands: &MatMulOperands,
) -> Result<(), String> {
    let MatMul { gemm: g, factors, result, ending } = shape;
    let MatMulOperands { a, b, c, vector, inside } = *operands;
    memory.require(a, g.m * g.k * factors.bytes())?;
    memory.require(b, g.k * g.n * factors.bytes())?;
    memory.require(c, g.m * g.n * result.bytes())?;
    let used = [vector, inside].into_iter().chain((*ending != Ending::Plain).then_some(a | b | c));
    if used.into_iter().any(|address| !address.is_multiple_of(MatMulOperands::ALIGNMENT)) {
        return Err("an operand of a product that does more is not aligned".to_string());
    }
    match ending {
        Ending::Plain => {}
        Ending::Bias | Ending::BiasGelu { .. } => memory.require(vector, g.n * result.bytes())?,
        Ending::Sums => memory.require(vector, g.n * DType::F32.bytes())?,
    }
    if let Ending::BiasGelu { keeps: true } = ending {
        memory.require(inside, g.m * g.n * result.bytes())?;
    }
    // SAFETY: the operands are live, and the caller of `matmul` promised that nothing else uses what is written.
    unsafe {
        match (factors, result) {
            (DType::F32, DType::F32) => compute::<f32, f32>(g, *ending, operands),
            (DType::Bf16, DType::F32) => compute::<bf16, f32>(g, *ending, operands),
            (DType::Bf16, DType::Bf16) => compute::<bf16, bf16>(g, *ending, operands),
            (factors, result) => {
                Err(format!("no product of {factors} factors has a result of {result}"))
            }
        }
    }
}

/// An element that is computed with in f32.
trait Number: Element {
    fn wide(self) -> f32;
    fn rounded(wide: f32) -> Self;
}

impl Number for f32 {
    fn wide(self) -> f32 {
        self
    }

    fn rounded(wide: f32) -> f32 {
        wide
    }
}

impl Number for bf16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }

    fn rounded(wide: f32) -> bf16 {
        bf16::from_f32(wide)
    }
}

/// # Safety
/// The operands are live and as long as the product says, and nothing else uses what is written.
unsafe fn compute<F: Number, R: Number>(
    g: &Gemm,
    ending: Ending,
    operands: &MatMulOperands,
) -> Result<(), String> {
    let MatMulOperands { a, b, c, vector, inside } = *operands;
    let (cpu, len) = (cpu()?, g.m * g.n);
    // SAFETY: as the caller promises, for this and the next ones.
    let (left, right) = unsafe { (read::<F>(a, g.m * g.k), read::<F>(b, g.k * g.n)) };
    let keeps = match ending {
        Ending::Plain | Ending::Sums => {
            // SAFETY: as above.
            cpu.gemm(
                g,
                View::from(left),
                View::from(right),
                ViewMut::from(unsafe { write::<R>(c, len) }),
            );
            if ending == Ending::Sums {
                // SAFETY: as above.
                sums(g, right, unsafe { write::<f32>(vector, g.n) });
            }
            return Ok(());
        }
        Ending::Bias => None,
        Ending::BiasGelu { keeps } => Some(keeps),
    };
    // SAFETY: as above.
    let (result, bias) = unsafe { (write::<R>(c, len), read::<R>(vector, g.n)) };
    let mut sum: Vec<f32> = result.iter().map(|x| x.wide()).collect();
    cpu.gemm(g, View::from(left), View::from(right), ViewMut::from(&mut sum[..]));
    for (at, sum) in sum.iter_mut().enumerate() {
        *sum += bias[at % g.n].wide();
    }
    if keeps == Some(true) {
        // SAFETY: as above.
        let inside = unsafe { write::<R>(inside, len) };
        inside.iter_mut().zip(&sum).for_each(|(inside, sum)| *inside = R::rounded(*sum));
    }
    for (result, sum) in result.iter_mut().zip(sum) {
        *result = R::rounded(if keeps.is_some() { gelu(sum) } else { sum });
    }
    Ok(())
}

/// The sum of each column of `op(b)`.
fn sums<F: Number>(g: &Gemm, b: &[F], sums: &mut [f32]) {
    for (col, sum) in sums.iter_mut().enumerate() {
        let at = |row: usize| b[if g.trans_b { col * g.k + row } else { row * g.n + col }].wide();
        *sum = (0..g.k).map(at).sum();
    }
}

/// Hendrycks and Gimpel 2016, in the `tanh` form.
fn gelu(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
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
unsafe fn read<'a, T: Element>(address: u64, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

/// # Safety
/// As [`read`], and nothing else uses them.
unsafe fn write<'a, T: Element>(address: u64, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

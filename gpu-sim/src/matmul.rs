//! Matmuls with epilogues.

use std::sync::OnceLock;

use half::bf16;
use meshwright_backend::{BatchedGemm, DType, Element, Gemm, MatmulOps, View, ViewMut};
use meshwright_cpu::CpuBackend;
use meshwright_cuda::{MatMul, MatMulEpilogue, MatMulOperands};

use crate::memory::Memory;

/// Computes a matmul and its epilogue as cuBLASLt does: accumulation in f32, rounded once at the end.
pub(crate) fn compute_matmul(
    memory: &Memory,
    shape: &MatMul,
    operands: &MatMulOperands,
) -> Result<(), String> {
    let MatMul { gemm: g, inputs, result, epilogue, .. } = shape;
    let MatMulOperands { a, b, c, bias, aux } = *operands;
    let batched = shape.batched_gemm();
    let lens = batched.ends();
    memory.require(a, lens[0] * inputs.bytes())?;
    memory.require(b, lens[1] * inputs.bytes())?;
    memory.require(c, lens[2] * result.bytes())?;
    let used =
        [bias, aux].into_iter().chain((*epilogue != MatMulEpilogue::Plain).then_some(a | b | c));
    if used.into_iter().any(|address| !address.is_multiple_of(MatMulOperands::ALIGNMENT)) {
        return Err("an operand of a matmul with an epilogue is not aligned".to_string());
    }
    match epilogue {
        MatMulEpilogue::Plain => {}
        MatMulEpilogue::Bias | MatMulEpilogue::BiasGelu { .. } => {
            memory.require(bias, g.n * result.bytes())?
        }
    }
    if let MatMulEpilogue::BiasGelu { aux: true } = epilogue {
        memory.require(aux, g.m * g.n * result.bytes())?;
    }
    if shape.batch.is_some() {
        // SAFETY: as below.
        return unsafe {
            match (inputs, result) {
                (DType::F32, DType::F32) => compute_batch::<f32, f32>(&batched, operands),
                (DType::Bf16, DType::F32) => compute_batch::<bf16, f32>(&batched, operands),
                (DType::Bf16, DType::Bf16) => compute_batch::<bf16, bf16>(&batched, operands),
                (inputs, result) => {
                    Err(format!("no matmul of {inputs} inputs has a {result} result"))
                }
            }
        };
    }
    // SAFETY: the operands are live, and the caller of `matmul` guarantees exclusive access to the outputs.
    unsafe {
        match (inputs, result) {
            (DType::F32, DType::F32) => compute::<f32, f32>(g, *epilogue, operands),
            (DType::Bf16, DType::F32) => compute::<bf16, f32>(g, *epilogue, operands),
            (DType::Bf16, DType::Bf16) => compute::<bf16, bf16>(g, *epilogue, operands),
            (inputs, result) => Err(format!("no matmul of {inputs} inputs has a {result} result")),
        }
    }
}

/// An element type that is computed in f32.
trait Number: Element {
    fn to_f32(self) -> f32;
    fn rounded(wide: f32) -> Self;
}

impl Number for f32 {
    fn to_f32(self) -> f32 {
        self
    }

    fn rounded(wide: f32) -> f32 {
        wide
    }
}

impl Number for bf16 {
    fn to_f32(self) -> f32 {
        self.to_f32()
    }

    fn rounded(wide: f32) -> bf16 {
        bf16::from_f32(wide)
    }
}

/// # Safety
/// The operands are live and of the sizes of the matmul, and nothing else uses the outputs.
unsafe fn compute<F: Number, R: Number>(
    g: &Gemm,
    epilogue: MatMulEpilogue,
    operands: &MatMulOperands,
) -> Result<(), String> {
    let MatMulOperands { a, b, c, bias: bias_address, aux: aux_address } = *operands;
    let (cpu, len) = (cpu()?, g.m * g.n);
    // SAFETY: as the caller promises, here and below.
    let (left, right) = unsafe { (read::<F>(a, g.m * g.k), read::<F>(b, g.k * g.n)) };
    let gelu_aux = match epilogue {
        MatMulEpilogue::Plain => {
            // SAFETY: as above.
            cpu.gemm(
                g,
                View::from(left),
                View::from(right),
                ViewMut::from(unsafe { write::<R>(c, len) }),
            );
            return Ok(());
        }
        MatMulEpilogue::Bias => None,
        MatMulEpilogue::BiasGelu { aux } => Some(aux),
    };
    // SAFETY: as above.
    let (result, bias) = unsafe { (write::<R>(c, len), read::<R>(bias_address, g.n)) };
    let mut sum: Vec<f32> = result.iter().map(|x| x.to_f32()).collect();
    cpu.gemm(g, View::from(left), View::from(right), ViewMut::from(&mut sum[..]));
    for (at, sum) in sum.iter_mut().enumerate() {
        *sum += bias[at % g.n].to_f32();
    }
    if gelu_aux == Some(true) {
        // SAFETY: as above.
        let aux = unsafe { write::<R>(aux_address, len) };
        aux.iter_mut().zip(&sum).for_each(|(aux, sum)| *aux = R::rounded(*sum));
    }
    for (result, sum) in result.iter_mut().zip(sum) {
        *result = R::rounded(if gelu_aux.is_some() { gelu(sum) } else { sum });
    }
    Ok(())
}

/// # Safety
/// The operands are live and of the sizes of the matmuls, and nothing else uses the outputs.
unsafe fn compute_batch<F: Number, R: Number>(
    g: &BatchedGemm,
    operands: &MatMulOperands,
) -> Result<(), String> {
    let MatMulOperands { a, b, c, .. } = *operands;
    let [a_len, b_len, c_len] = g.ends();
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (read::<F>(a, a_len), read::<F>(b, b_len)) };
    // SAFETY: as above.
    let result = unsafe { write::<R>(c, c_len) };
    cpu()?.batched_gemm(g, View::from(left), View::from(right), ViewMut::from(result));
    Ok(())
}

/// GELU (Hendrycks and Gimpel 2016), in the `tanh` form.
fn gelu(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// Returns the CPU backend shared by all simulated devices.
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
/// As [`read`], with exclusive access.
unsafe fn write<'a, T: Element>(address: u64, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

//! GEMM throughput of this machine: `gemm_peak [THREADS] [f32|bf16]` prints `{"gemm_gflops": ..}`.

use std::time::{Duration, Instant};

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Element, Gemm, MatmulOps, View, ViewMut};

/// The gate and up projection of the 34M-parameter Llama.
const MATMUL: Gemm =
    Gemm { m: 2048, n: 1408, k: 512, trans_a: false, trans_b: false, accumulate: false };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(Ok(1), |threads| threads.parse())?;
    let cpu = CpuBackend::new(threads)?;
    let best = match args.next().as_deref() {
        None | Some("f32") => best_seconds(&cpu, 1f32),
        Some("bf16") => best_seconds(&cpu, bf16::ONE),
        Some(dtype) => return Err(format!("dtype {dtype:?}: choose f32 or bf16").into()),
    };
    let flops = 2.0 * (MATMUL.m * MATMUL.n * MATMUL.k) as f64;
    println!("{{\"gemm_gflops\": {:.1}}}", flops / best / 1e9);
    Ok(())
}

/// Returns the shortest time of many calls, in seconds. All operands have the dtype of `one`, as in a forward pass.
fn best_seconds<T: Element>(cpu: &CpuBackend, one: T) -> f64 {
    let matrix = |rows: usize, columns: usize| vec![one; rows * columns];
    let (a, b) = (matrix(MATMUL.m, MATMUL.k), matrix(MATMUL.k, MATMUL.n));
    let mut c = matrix(MATMUL.m, MATMUL.n);
    let end = Instant::now() + Duration::from_secs(2);
    let mut best = f64::INFINITY;
    while Instant::now() < end {
        let start = Instant::now();
        cpu.gemm(&MATMUL, View::from(&a[..]), View::from(&b[..]), ViewMut::from(&mut c[..]));
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

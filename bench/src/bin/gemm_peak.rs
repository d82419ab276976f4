//! GEMM throughput of this machine: `gemm_peak [THREADS]` prints `{"gemm_gflops": ..}`.

use std::time::{Duration, Instant};

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Gemm, MatmulOps, View, ViewMut};

/// The gate and up projection of the 34M-parameter Llama.
const MATMUL: Gemm =
    Gemm { m: 2048, n: 1408, k: 512, trans_a: false, trans_b: false, accumulate: false };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(1), |threads| threads.parse())?;
    let cpu = CpuBackend::new(threads)?;
    let a = vec![1f32; MATMUL.m * MATMUL.k];
    let b = vec![1f32; MATMUL.k * MATMUL.n];
    let mut c = vec![0f32; MATMUL.m * MATMUL.n];
    let end = Instant::now() + Duration::from_secs(2);
    let mut best = f64::INFINITY;
    while Instant::now() < end {
        let start = Instant::now();
        cpu.gemm(&MATMUL, View::from(&a[..]), View::from(&b[..]), ViewMut::from(&mut c[..]));
        best = best.min(start.elapsed().as_secs_f64());
    }
    let flops = 2.0 * (MATMUL.m * MATMUL.n * MATMUL.k) as f64;
    println!("{{\"gemm_gflops\": {:.1}}}", flops / best / 1e9);
    Ok(())
}

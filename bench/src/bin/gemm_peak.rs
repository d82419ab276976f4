//! GEMM throughput of this machine: `gemm_peak [THREADS] [f32|bf16]` prints `{"gemm_gflops": ..}`.

use std::time::Duration;

use meshwright::backend::DType;
use meshwright::backend::cpu::CpuBackend;
use meshwright::bench::{MatmulSize, measure_matmul};
use meshwright::comm::RankComms;
use meshwright::mesh::MeshShape;
use meshwright::tensor::Rank;

/// The gate and up projection of the 34M-parameter Llama.
const MATMUL: MatmulSize = MatmulSize { m: 2048, n: 1408, k: 512 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(Ok(1), |threads| threads.parse())?;
    let dtype = match args.next().as_deref() {
        None | Some("f32") => DType::F32,
        Some("bf16") => DType::Bf16,
        Some(dtype) => return Err(format!("dtype {dtype:?}: choose f32 or bf16").into()),
    };
    let backend = Box::new(CpuBackend::new(threads)?);
    let rank = Rank::new(RankComms::unattended(MeshShape::SINGLE), backend, 0);
    let best = measure_matmul(&rank, MATMUL, dtype, (1, Duration::from_secs(2)));
    println!("{{\"gemm_gflops\": {:.1}}}", MATMUL.flops() / best / 1e9);
    Ok(())
}

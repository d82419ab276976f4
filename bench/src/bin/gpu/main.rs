//! What a GPU does: its own limits, and every kernel at the sizes of a training step beside them.
//!
//! `gpu [NAME]` prints Markdown tables, of the kernels whose names contain NAME. Sizes are those of a Llama of 1.2B
//! parameters (hidden 2048, feed-forward 8192, 32 query and 8 key/value heads of 64, vocabulary 32000) on 16384 tokens, 4
//! sequences of 4096. Operands are random numbers: on zeros a device draws less power, and runs faster than it would.

mod attention;
mod element_wise;
mod gemm;
mod loss;
mod optimizer;
mod report;

use std::sync::Arc;

use meshwright::backend::Backend;
use meshwright::backend::cuda::native::NativeDriver;
use meshwright::backend::cuda::{CudaBackend, Driver};

use report::Report;

const BATCH: usize = 4;
const SEQ: usize = 4096;
const TOKENS: usize = BATCH * SEQ;
const HIDDEN: usize = 2048;
const FFN: usize = 8192;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 64;
const VOCAB: usize = 32000;

fn main() {
    let driver = NativeDriver::new(0).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(1);
    });
    let properties = driver.properties().clone();
    let backend: Arc<dyn Backend> = Arc::new(CudaBackend::new(driver));
    let mut report = Report::new(backend, std::env::args().nth(1).unwrap_or_default());
    report.limits(&properties);
    gemm::rows(&mut report);
    attention::rows(&mut report);
    element_wise::rows(&mut report);
    loss::rows(&mut report);
    optimizer::rows(&mut report);
}

//! Cost of an optimizer step on the FSDP units of the 34M-parameter Llama (hidden 512, feed-forward 1408, 8 layers, 8
//! heads of 64, vocabulary 8192), next to the kernel alone on one buffer of that size and a plain copy.
//!
//! `optim` prints a Markdown table. There is one rank with one thread, and times are CPU time of that thread, which
//! does not depend on the machine's load.

use std::sync::Arc;

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::ops::optim::AdamwArgs;
use meshwright::backend::{AdamGroup, AdamStep, BlockCopy, Buffer, Category, DType, StateRounding};
use meshwright::comm::{CommError, launch};
use meshwright::models::llama::{Llama, LlamaConfig};
use meshwright::nn::{Built, build};
use meshwright::optim::{AdamWOptions, Ema, Muon, MuonOptions, Optimizer, SgdOptions, UpdateRule};
use meshwright::tensor::{Gradients, Rank, Reduced, Settings, Targets, Tokens};
use meshwright::train::LanguageModel;
use meshwright_bench::thread_time;
use meshwright_examples::lion::Lion;

/// Tokens of the loss whose gradients are applied: few, because only the optimizer step is measured.
const TOKENS: usize = 8;
const STEPS: usize = 8;

fn main() {
    println!("| step of 34M parameters | ms | rate | of copy |\n|---|---|---|---|");
    let mesh = "1".parse().expect("one rank is a mesh");
    for compute in [DType::F32, DType::Bf16] {
        launch(&mesh, |comms| {
            let backend = CpuBackend::new(1).expect("a backend starts");
            let settings = Settings { compute, ..Settings::new(0) };
            measure(&Rank::with_settings(comms, Box::new(backend), settings));
            Ok::<(), CommError>(())
        })
        .expect("one rank does not fail");
    }
}

fn measure(rank: &Rank) {
    let sizes = Llama::sizes(&LlamaConfig {
        hidden: 512,
        ffn: 1408,
        layers: 8,
        heads: 8,
        kv_heads: 8,
        head_dim: 64,
        vocab: 8192,
        ..LlamaConfig::default()
    });
    let built = build::<Llama>(rank, &sizes).expect("the sizes fit one rank");
    let len = built.global_len();
    let bandwidth = copy_bandwidth(rank, len);
    let report = |name: &str, elements: f64, seconds: f64| {
        let rate = 4.0 * elements * len as f64 / seconds;
        println!(
            "| {name}, {} | {:.1} | {:.1} GB/s | {:.0} % |",
            rank.compute_dtype(),
            seconds * 1e3,
            rate * 1e-9,
            100.0 * rate / bandwidth
        );
    };
    // A bf16 copy of the new values is half the size of f32.
    let copy = if rank.compute_dtype() == DType::F32 { 0.0 } else { 0.5 };
    report("AdamW, kernel alone", 7.0 + copy, adamw_alone(rank, len, DType::F32));
    let name = "AdamW with moments in bf16, kernel alone";
    report(name, 5.0 + copy, adamw_alone(rank, len, DType::Bf16));
    let adamw = AdamWOptions::default();
    let gradients = || gradients(rank, &built);
    let rules: [(&str, Arc<dyn UpdateRule>, f64); 3] = [
        ("AdamW", Arc::new(adamw), 7.0),
        ("SGD", Arc::new(SgdOptions::default()), 5.0),
        ("Lion, as an expression", Arc::new(Lion::default()), 5.0),
    ];
    for (name, rule, elements) in rules {
        let mut optimizer = Optimizer::new(rank, &built.units, rule);
        let seconds = best(gradients, |gradients| optimizer.step(1e-4, gradients));
        report(name, elements + copy, seconds);
        if name == "AdamW" {
            let mut average = Ema::new(rank, &built.units, 0.99);
            let step = |gradients| optimizer.step_and_average(1e-4, gradients, &mut average);
            report("AdamW and average", 10.0 + copy, best(gradients, step));
        }
    }
    let mut muon = Muon::new(rank, &built.units, MuonOptions { adamw, ..MuonOptions::default() });
    let mut flops = 0;
    let seconds = best(gradients, |gradients| {
        let before = rank.backend().flops();
        muon.step(1e-4, gradients);
        flops = rank.backend().flops() - before;
    });
    let rate = flops as f64 / seconds * 1e-9;
    println!("| Muon, {} | {:.1} | {rate:.0} GFLOP/s | |", rank.compute_dtype(), seconds * 1e3);
}

fn gradients(rank: &Rank, built: &Built<Llama>) -> Gradients<Reduced> {
    let tokens = Tokens::from_block(rank, &[1, TOKENS], &[7; TOKENS]);
    let targets = Targets::from_block(rank, &[1, TOKENS], &[9; TOKENS]);
    built.model.loss(&tokens, &targets).backward().reduce()
}

/// Measures the kernel on one buffer per operand, with as many elements as the model has parameters.
fn adamw_alone(rank: &Rank, len: usize, state: DType) -> f64 {
    let buffer = |dtype| rank.allocator().zeros(dtype, len, Category::Workspace);
    let [mut p, g, mut m, mut v] = [DType::F32, DType::F32, state, state].map(buffer);
    let rounding = [StateRounding::contiguous(1, 0, len)];
    let rounding = if state == DType::Bf16 { &rounding[..] } else { &[] };
    let mut copy: Option<Buffer> =
        (rank.compute_dtype() != DType::F32).then(|| buffer(rank.compute_dtype()));
    let step = AdamStep {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        bias_correction1: 0.5,
        bias_correction2: 0.5,
        grad_scale: 1.0,
    };
    best(
        || {},
        |()| {
            let copy = copy.as_mut().map(Buffer::view_mut);
            rank.backend().adamw(
                &step,
                &[AdamGroup { len, lr: 1e-4, weight_decay: 0.1 }],
                AdamwArgs {
                    p: p.view_mut(),
                    g: g.view(),
                    m: m.view_mut(),
                    v: v.view_mut(),
                    copy,
                    rounding,
                },
            );
        },
    )
}

/// Returns the bandwidth of a copy that exceeds all caches, in bytes read and written per second.
fn copy_bandwidth(rank: &Rank, len: usize) -> f64 {
    let zeros = || rank.allocator().zeros(DType::F32, len, Category::Workspace);
    let (from, mut to) = (zeros(), zeros());
    let copy = |()| {
        rank.backend().copy_blocks(
            &BlockCopy {
                blocks: 1,
                len,
                src_start: 0,
                src_stride: len,
                dst_start: 0,
                dst_stride: len,
            },
            from.view(),
            to.view_mut(),
        );
    };
    8.0 * len as f64 / best(|| {}, copy)
}

/// Returns the minimum CPU time of several calls, in seconds; `prepare` is not measured.
fn best<T>(mut prepare: impl FnMut() -> T, mut call: impl FnMut(T)) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..STEPS {
        let prepared = prepare();
        let begin = thread_time();
        call(prepared);
        best = best.min(thread_time() - begin);
    }
    best
}

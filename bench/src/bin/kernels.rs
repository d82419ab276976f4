//! What every kernel costs in one training step of the 34M-parameter Llama (hidden 512, feed-forward 1408, 8 layers,
//! 8 heads of 64, vocabulary 8192, batch 4, sequence 512), beside the machine's own limits.
//!
//! `kernels [THREADS]` prints a Markdown table. With one thread, times are processor time of that thread, so that a busy
//! machine does not count; otherwise they are wall-clock times.

use std::cell::Cell;
use std::time::{Duration, Instant};

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{
    AdamStep, AttentionShape, Backend, Expr, Gemm, LeafGrad, Node, RopeShape, View, ViewMut,
};

const TOKENS: usize = 2048;
const HIDDEN: usize = 512;
const FFN: usize = 1408;
const LAYERS: usize = 8;
const VOCAB: usize = 8192;
const PARAMETERS: usize = 2 * VOCAB * HIDDEN + LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN);
/// Tokens whose logits exist at once.
const LOSS_CHUNK: usize = 256;

fn main() {
    let threads = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1);
    WALL_CLOCK.set(threads > 1);
    let cpu = CpuBackend::new(threads).expect("threads start");
    let mut report = Report::new(&cpu);
    gemms(&mut report);
    attentions(&mut report);
    element_wise(&mut report);
    loss(&mut report);
    optimizer(&mut report);
    report.finish();
}

/// The work of one call.
enum Work {
    /// Floating-point operations.
    Flops(usize),
    /// f32 elements that must be read or written.
    Elements(usize),
}

struct Report<'a> {
    cpu: &'a CpuBackend,
    peak: f64,
    bandwidth: f64,
    step: f64,
}

impl<'a> Report<'a> {
    fn new(cpu: &'a CpuBackend) -> Self {
        let mut report = Report { cpu, peak: 0.0, bandwidth: 0.0, step: 0.0 };
        let (a, b, mut c) = (vec![0.5; 1 << 20], vec![0.5; 1 << 18], vec![0.0; 1 << 20]);
        let g = gemm(TOKENS, HIDDEN, HIDDEN, "nn");
        let seconds = best(|| cpu.gemm(&g, view(&a), view(&b), view_mut(&mut c)));
        report.peak = 2.0 * (TOKENS * HIDDEN * HIDDEN) as f64 / seconds;
        // Far larger than any cache.
        let (from, mut to) = (vec![1.0; 1 << 26], vec![0.0; 1 << 26]);
        let n = from.len();
        let seconds = best(|| cpu.copy_blocks(1, n, view(&from), 0, n, view_mut(&mut to), 0, n));
        report.bandwidth = 8.0 * n as f64 / seconds;
        println!(
            "{} thread(s); GEMM peak {:.0} GFLOP/s; copy bandwidth {:.1} GB/s\n",
            cpu.threads(),
            report.peak * 1e-9,
            report.bandwidth * 1e-9
        );
        println!(
            "| kernel | calls per step | ms per call | rate | of peak or copy | ms per step |"
        );
        println!("|---|---|---|---|---|---|");
        report
    }

    fn row(&mut self, name: &str, calls: usize, work: Work, mut call: impl FnMut()) {
        let seconds = best(&mut call);
        let (amount, limit, unit) = match work {
            Work::Flops(flops) => (flops as f64, self.peak, "GFLOP/s"),
            Work::Elements(elements) => (4.0 * elements as f64, self.bandwidth, "GB/s"),
        };
        let rate = amount / seconds;
        let per_step = calls as f64 * seconds * 1e3;
        self.step += per_step;
        println!(
            "| {name} | {calls} | {:.3} | {:.1} {unit} | {:.0} % | {per_step:.1} |",
            seconds * 1e3,
            rate * 1e-9,
            100.0 * rate / limit,
        );
    }

    fn finish(self) {
        println!("| all | | | | | {:.0} |", self.step);
    }
}

thread_local! {
    static WALL_CLOCK: Cell<bool> = const { Cell::new(true) };
}

/// A point in the time that is measured, in seconds.
fn now() -> f64 {
    let clock =
        if WALL_CLOCK.get() { libc::CLOCK_MONOTONIC } else { libc::CLOCK_THREAD_CPUTIME_ID };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "the clock exists");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Shortest of many calls, in seconds.
fn best(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut calls = 0;
    while calls < 5 || start.elapsed() < Duration::from_millis(400) {
        let begin = now();
        call();
        best = best.min(now() - begin);
        calls += 1;
    }
    best
}

fn view(x: &[f32]) -> View<'_> {
    x.into()
}

fn view_mut(x: &mut [f32]) -> ViewMut<'_> {
    x.into()
}

fn gemm(m: usize, n: usize, k: usize, layout: &str) -> Gemm {
    let (trans_a, trans_b) = (layout.starts_with('t'), layout.ends_with('t'));
    Gemm { m, n, k, trans_a, trans_b, accumulate: trans_a }
}

fn gemms(report: &mut Report) {
    let products = [
        ("projections", 4 * LAYERS, HIDDEN, HIDDEN),
        ("gate and up", 2 * LAYERS, HIDDEN, FFN),
        ("down", LAYERS, FFN, HIDDEN),
        ("head", 1, HIDDEN, VOCAB),
    ];
    for (name, calls, inputs, outputs) in products {
        let forward = gemm(TOKENS, outputs, inputs, "nt");
        let input_gradient = gemm(TOKENS, inputs, outputs, "nn");
        let weight_gradient = gemm(outputs, inputs, TOKENS, "tn");
        for (what, g) in [
            ("forward", forward),
            ("input gradient", input_gradient),
            ("weight gradient", weight_gradient),
        ] {
            let (a, b) = (vec![0.5; g.m * g.k], vec![0.25; g.k * g.n]);
            let mut c = vec![0.0; g.m * g.n];
            let cpu = report.cpu;
            report.row(
                &format!("gemm {name}, {what}"),
                calls,
                Work::Flops(2 * g.m * g.n * g.k),
                || {
                    cpu.gemm(&g, view(&a), view(&b), view_mut(&mut c));
                },
            );
        }
    }
}

fn attentions(report: &mut Report) {
    for (batch, seq, heads, head_dim, calls) in
        [(4, 512, 8, 64, LAYERS), (1, 2048, 8, 64, 0), (1, 4096, 8, 64, 0), (1, 2048, 8, 128, 0)]
    {
        let scale = (head_dim as f32).powf(-0.5);
        let s =
            AttentionShape { batch, seq, heads, kv_heads: heads, head_dim, scale, causal: true };
        let len = batch * seq * heads * head_dim;
        let x: Vec<f32> = (0..len).map(|i| (i % 31) as f32 / 31.0).collect();
        let (q, k, v, dout) = (&x, &x, &x, &x);
        let (mut out, mut lse) = (vec![0.0; len], vec![0.0; batch * heads * seq]);
        // The lower triangle with its diagonal.
        let flops = 2 * batch * heads * head_dim * seq * (seq + 1);
        let name = format!("attention {batch} x {seq} x {heads} x {head_dim}");
        let cpu = report.cpu;
        report.row(&format!("{name}, forward"), calls, Work::Flops(flops), || {
            let (out, lse) = (view_mut(&mut out), view_mut(&mut lse));
            cpu.attention(&s, view(q), view(k), view(v), out, lse);
        });
        let (mut dq, mut dk, mut dv) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
        report.row(&format!("{name}, backward"), calls, Work::Flops(flops * 5 / 2), || {
            cpu.attention_backward(
                &s,
                view(q),
                view(k),
                view(v),
                view(&out),
                view(&lse),
                view(dout),
                view_mut(&mut dq),
                view_mut(&mut dk),
                view_mut(&mut dv),
            );
        });
    }
}

fn element_wise(report: &mut Report) {
    let cpu = report.cpu;
    let len = TOKENS * HIDDEN;
    let (x, w, dy) = (vec![0.5; len], vec![1.0; HIDDEN], vec![0.1; len]);
    let (mut y, mut dx) = (vec![0.0; len], vec![0.0; len]);
    let (mut inv, mut mean) = (vec![1.0; TOKENS], vec![0.0; TOKENS]);
    let (mut dw, mut db) = (vec![0.0; HIDDEN], vec![0.0; HIDDEN]);
    let norms = 2 * LAYERS + 1;
    report.row("rms_norm", norms, Work::Elements(2 * len), || {
        cpu.rms_norm(view(&x), view(&w), 1e-5, view_mut(&mut y), view_mut(&mut inv));
    });
    report.row("rms_norm_backward", norms, Work::Elements(3 * len), || {
        let (dx, dw) = (view_mut(&mut dx), Some(view_mut(&mut dw)));
        cpu.rms_norm_backward(view(&x), view(&w), view(&inv), view(&dy), dx, dw);
    });
    report.row("layer_norm", 0, Work::Elements(2 * len), || {
        let (y, mean, inv) = (view_mut(&mut y), view_mut(&mut mean), view_mut(&mut inv));
        cpu.layer_norm(view(&x), view(&w), view(&w), 1e-5, y, mean, inv);
    });
    report.row("layer_norm_backward", 0, Work::Elements(3 * len), || {
        let (dw, db) = (Some(view_mut(&mut dw)), Some(view_mut(&mut db)));
        let (dx, mean, inv) = (view_mut(&mut dx), view(&mean), view(&inv));
        cpu.layer_norm_backward(view(&x), view(&w), mean, inv, view(&dy), dx, dw, db);
    });
    let rope = RopeShape { batch: 4, seq: 512, heads: 8, head_dim: 64 };
    let table = vec![0.7; 512 * 32];
    report.row("rope, q and k, both ways", 4 * LAYERS, Work::Elements(2 * len), || {
        cpu.rope(&rope, view_mut(&mut y), view(&table), view(&table), false);
    });
    let add = Expr { nodes: vec![Node::Leaf(0), Node::Leaf(1), Node::Add(0, 1)] };
    report.row("map residual", 2 * LAYERS, Work::Elements(3 * len), || {
        cpu.map(&add, &[view(&x), view(&dy)], view_mut(&mut y));
    });
    report.row("add_assign, gradient of the residual", 2 * LAYERS, Work::Elements(3 * len), || {
        cpu.add_assign(view_mut(&mut dx), view(&dy));
    });

    let len = TOKENS * FFN;
    let (a, b, grad) = (vec![0.5; len], vec![0.25; len], vec![0.1; len]);
    let (mut out, mut da, mut db) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
    let nodes = vec![Node::Leaf(0), Node::Silu(0), Node::Leaf(1), Node::Mul(1, 2)];
    let swiglu = Expr { nodes };
    report.row("map silu(a) * b", LAYERS, Work::Elements(3 * len), || {
        cpu.map(&swiglu, &[view(&a), view(&b)], view_mut(&mut out));
    });
    report.row("map_backward silu(a) * b", LAYERS, Work::Elements(5 * len), || {
        let slots = [&mut da, &mut db]
            .map(|grad| Some(LeafGrad { view: view_mut(grad), accumulate: false }));
        cpu.map_backward(&swiglu, &[view(&a), view(&b)], view(&grad), &mut { slots });
    });
    for (name, node) in [("gelu", Node::Gelu(0)), ("tanh", Node::Tanh(0)), ("exp", Node::Exp(0))] {
        let expr = Expr { nodes: vec![Node::Leaf(0), node] };
        report.row(&format!("map {name}"), 0, Work::Elements(2 * len), || {
            cpu.map(&expr, &[view(&a)], view_mut(&mut out));
        });
    }
}

fn loss(report: &mut Report) {
    let cpu = report.cpu;
    let len = LOSS_CHUNK * VOCAB;
    let calls = TOKENS / LOSS_CHUNK;
    let mut logits: Vec<f32> = (0..len).map(|i| (i % 97) as f32 / 97.0).collect();
    let targets: Vec<u32> = (0..LOSS_CHUNK as u32).collect();
    let (mut max, mut sum) = (vec![0.0; LOSS_CHUNK], vec![0.0; LOSS_CHUNK]);
    let (mut target, scale) = (vec![0.0; LOSS_CHUNK], vec![0.001; LOSS_CHUNK]);
    report.row("row_max", calls, Work::Elements(len), || {
        cpu.row_max(VOCAB, view(&logits), view_mut(&mut max));
    });
    report.row("exp_sum", calls, Work::Elements(len), || {
        let (sum, target) = (view_mut(&mut sum), view_mut(&mut target));
        cpu.exp_sum(VOCAB, view(&logits), view(&max), (&targets[..]).into(), 0, sum, target);
    });
    report.row("cross_entropy_grad", calls, Work::Elements(2 * len), || {
        let (max, sum, targets) = (view(&max), view(&sum), (&targets[..]).into());
        cpu.cross_entropy_grad(VOCAB, view_mut(&mut logits), max, sum, targets, 0, view(&scale));
    });
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7919 % VOCAB as u32).collect();
    let (mut table, mut x) = (vec![0.5; VOCAB * HIDDEN], vec![0.1; TOKENS * HIDDEN]);
    report.row("embedding", 1, Work::Elements(2 * x.len()), || {
        cpu.embedding((&tokens[..]).into(), view(&table), 0, view_mut(&mut x));
    });
    report.row("embedding_backward", 1, Work::Elements(3 * x.len()), || {
        cpu.embedding_backward((&tokens[..]).into(), 0, view(&x), view_mut(&mut table));
    });
}

fn optimizer(report: &mut Report) {
    let cpu = report.cpu;
    let (mut p, mut g) = (vec![0.5; PARAMETERS], vec![0.1; PARAMETERS]);
    let (mut m, mut v) = (vec![0.1; PARAMETERS], vec![0.1; PARAMETERS]);
    let step = AdamStep {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        bias_correction1: 0.5,
        bias_correction2: 0.5,
        grad_scale: 1.0,
    };
    report
        .row("fill, gradients", 1, Work::Elements(PARAMETERS), || cpu.fill(view_mut(&mut g), 0.1));
    let mut total = 0.0;
    report.row("sum_squares", 1, Work::Elements(PARAMETERS), || total += cpu.sum_squares(view(&g)));
    assert!(total.is_finite(), "the gradients are finite");
    report.row("adamw", 1, Work::Elements(7 * PARAMETERS), || {
        let (p, m, v) = (view_mut(&mut p), view_mut(&mut m), view_mut(&mut v));
        cpu.adamw(&step, p, view(&g), m, v);
    });
}

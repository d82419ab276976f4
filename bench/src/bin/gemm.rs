//! Compares GEMM crates in the shapes of a training step of the 34M-parameter Llama.
//!
//! `gemm [THREADS..]` prints a Markdown table per thread count (default: 1 and 2).

use std::time::{Duration, Instant};

use gemmkit::Parallelism;

/// One product: op(a) is `m x k`, op(b) is `k x n`, both operands row-major with their own row stride.
#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    m: usize,
    n: usize,
    k: usize,
    trans_a: bool,
    trans_b: bool,
    accumulate: bool,
    /// Row stride of `a`, `b` and `c`, or 0 for contiguous rows.
    stride: usize,
}

impl Case {
    const fn new(what: &'static str, m: usize, n: usize, k: usize, layout: &str) -> Case {
        let layout = layout.as_bytes();
        let (trans_a, trans_b) = (layout[0] == b't', layout[1] == b't');
        Case { what, m, n, k, trans_a, trans_b, accumulate: trans_a, stride: 0 }
    }

    const fn strided(self, stride: usize) -> Case {
        Case { stride, ..self }
    }

    fn strides(&self) -> [(isize, isize); 3] {
        let row =
            |contiguous: usize| if self.stride == 0 { contiguous } else { self.stride } as isize;
        let turn = |rows: isize, turned: bool| if turned { (1, rows) } else { (rows, 1) };
        [
            turn(row(if self.trans_a { self.m } else { self.k }), self.trans_a),
            turn(row(if self.trans_b { self.k } else { self.n }), self.trans_b),
            (row(self.n), 1),
        ]
    }

    fn flops(&self) -> f64 {
        2.0 * (self.m * self.n * self.k) as f64
    }
}

const CASES: &[Case] = &[
    Case::new("projection", 2048, 512, 512, "nn"),
    Case::new("projection", 2048, 512, 512, "nt"),
    Case::new("projection, weight gradient", 512, 512, 2048, "tn"),
    Case::new("gate and up", 2048, 1408, 512, "nn"),
    Case::new("gate and up", 2048, 1408, 512, "nt"),
    Case::new("gate and up, weight gradient", 512, 1408, 2048, "tn"),
    Case::new("down", 2048, 512, 1408, "nn"),
    Case::new("down", 2048, 512, 1408, "nt"),
    Case::new("down, weight gradient", 1408, 512, 2048, "tn"),
    Case::new("head", 2048, 8192, 512, "nn"),
    Case::new("head", 2048, 8192, 512, "nt"),
    Case::new("head, input gradient", 2048, 512, 8192, "nn"),
    Case::new("head, weight gradient", 8192, 512, 2048, "tn"),
    Case::new("head of 256 tokens", 256, 8192, 512, "nt"),
    Case::new("attention tile", 64, 64, 64, "nn").strided(512),
    Case::new("attention tile", 64, 64, 64, "nt").strided(512),
    Case::new("attention tile", 64, 64, 64, "tn").strided(512),
    Case::new("attention tile", 128, 128, 64, "nt").strided(512),
    Case::new("attention tile", 128, 64, 128, "nn").strided(512),
    Case::new("attention tile", 128, 64, 128, "tn").strided(512),
];

fn main() {
    let mut threads: Vec<usize> =
        std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    for threads in threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a thread pool starts").install(|| table(threads));
    }
}

fn table(threads: usize) {
    println!("\n### {threads} thread(s), GFLOP/s, best of repeated runs\n");
    println!("| product | m x n x k | layout | gemm 0.19 `x86-v4` | gemmkit 0.1.2 |");
    println!("|---|---|---|---|---|");
    let mut seconds = [0.0; 2];
    for case in CASES {
        let [one, two] = measure(case, threads);
        seconds[0] += case.flops() / one * 1e-9;
        seconds[1] += case.flops() / two * 1e-9;
        let layout = [case.trans_a, case.trans_b].map(|t| if t { 't' } else { 'n' });
        println!(
            "| {} | {} x {} x {} | {}{}{} | {one:.0} | {two:.0} |",
            case.what,
            case.m,
            case.n,
            case.k,
            layout[0],
            layout[1],
            if case.accumulate { " +=" } else { "" },
        );
    }
    println!("| sum of times, ms | | | {:.2} | {:.2} |", seconds[0] * 1e3, seconds[1] * 1e3);
}

/// The two crates take turns, so that a busy neighbour hurts both alike.
fn measure(case: &Case, threads: usize) -> [f64; 2] {
    let longest = |rows: usize, columns: usize| rows * columns.max(case.stride);
    let (m, n, k) = (case.m, case.n, case.k);
    let a = vec![0.5f32; longest(m, k).max(longest(k, m))];
    let b = vec![0.25f32; longest(k, n).max(longest(n, k))];
    let mut c = vec![0f32; longest(m, n)];
    let repeats = (2e7 / case.flops()).ceil() as usize;
    let mut best = [f64::INFINITY; 2];
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1200) {
        for (crate_idx, best) in best.iter_mut().enumerate() {
            let run = Instant::now();
            for _ in 0..repeats {
                match crate_idx {
                    0 => with_gemm(case, &a, &b, &mut c, threads),
                    _ => with_gemmkit(case, &a, &b, &mut c, threads),
                }
            }
            *best = best.min(run.elapsed().as_secs_f64() / repeats as f64);
        }
    }
    best.map(|seconds| case.flops() / seconds * 1e-9)
}

fn with_gemm(case: &Case, a: &[f32], b: &[f32], c: &mut [f32], threads: usize) {
    let [(a_row, a_col), (b_row, b_col), (c_row, c_col)] = case.strides();
    let parallelism =
        if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
    // SAFETY: the operands were sized for these shapes and strides in `measure`.
    unsafe {
        gemm::gemm(
            case.m,
            case.n,
            case.k,
            c.as_mut_ptr(),
            c_col,
            c_row,
            case.accumulate,
            a.as_ptr(),
            a_col,
            a_row,
            b.as_ptr(),
            b_col,
            b_row,
            case.accumulate as u8 as f32,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

fn with_gemmkit(case: &Case, a: &[f32], b: &[f32], c: &mut [f32], threads: usize) {
    let [(a_row, a_col), (b_row, b_col), (c_row, c_col)] = case.strides();
    let parallelism = if threads == 1 { Parallelism::Serial } else { Parallelism::Rayon(threads) };
    // SAFETY: the operands were sized for these shapes and strides in `measure`.
    unsafe {
        gemmkit::gemm_unchecked(
            case.m,
            case.k,
            case.n,
            1.0,
            a.as_ptr(),
            a_row,
            a_col,
            b.as_ptr(),
            b_row,
            b_col,
            case.accumulate as u8 as f32,
            c.as_mut_ptr(),
            c_row,
            c_col,
            parallelism,
        );
    }
}

//! Compares our GEMM with other crates', in the shapes of a training step of the 34M-parameter Llama.
//!
//! `gemm [THREADS..]` prints a Markdown table for each number of threads (default: 1 and 2). To measure AVX2 on a CPU
//! with AVX-512, set `MESHWRIGHT_MAX_CPU_ISA=avx2 GEMMKIT_REQUIRE_ISA=fma`; `gemm` uses AVX-512 with the feature
//! `gemm-avx512`, `matrixmultiply` never does.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Element, Gemm, MatmulOps, View, ViewMut};

/// A matmul of contiguous row-major operands.
struct Case {
    name: &'static str,
    matmul: Gemm,
}

impl Case {
    const fn new(name: &'static str, m: usize, n: usize, k: usize, layout: &str) -> Case {
        let layout = layout.as_bytes();
        let (trans_a, trans_b) = (layout[0] == b't', layout[1] == b't');
        Case { name, matmul: Gemm { m, n, k, trans_a, trans_b, accumulate: trans_a } }
    }

    fn flops(&self) -> f64 {
        let Gemm { m, n, k, .. } = self.matmul;
        2.0 * (m * n * k) as f64
    }

    /// Returns the row and column strides of both operands.
    fn strides(&self) -> [(isize, isize); 2] {
        let Gemm { m, n, k, trans_a, trans_b, .. } = self.matmul;
        [
            if trans_a { (1, m as isize) } else { (k as isize, 1) },
            if trans_b { (1, k as isize) } else { (n as isize, 1) },
        ]
    }
}

const CASES: &[Case] = &[
    Case::new("projection", 2048, 512, 512, "nn"),
    Case::new("projection", 2048, 512, 512, "nt"),
    Case::new("projection, weight gradient", 512, 512, 2048, "tn"),
    Case::new("gate and up", 2048, 1408, 512, "nn"),
    Case::new("gate and up", 2048, 512, 1408, "nt"),
    Case::new("gate and up, weight gradient", 512, 1408, 2048, "tn"),
    Case::new("down", 2048, 512, 1408, "nn"),
    Case::new("down", 2048, 1408, 512, "nt"),
    Case::new("down, weight gradient", 1408, 512, 2048, "tn"),
    Case::new("head", 2048, 8192, 512, "nt"),
    Case::new("head, input gradient", 2048, 512, 8192, "nn"),
    Case::new("head, weight gradient", 8192, 512, 2048, "tn"),
    Case::new("head of 256 tokens", 256, 8192, 512, "nt"),
    Case::new("sampling, one token", 1, 512, 512, "nn"),
    Case::new("sampling, head", 1, 8192, 512, "nt"),
];

/// Implementations in the order of the columns. Other crates have one column for f32.
const COLUMNS: [&str; 5] =
    ["ours, f32", "ours, bf16", "gemmkit 0.1.2", "gemm 0.19", "matrixmultiply 0.3"];

fn main() -> std::io::Result<()> {
    let mut threads: Vec<usize> =
        std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    for threads in threads {
        table(&CpuBackend::new(threads)?, threads);
    }
    Ok(())
}

fn table(ours: &CpuBackend, threads: usize) {
    println!("\n### {threads} thread(s), GFLOP/s, best of repeated runs\n");
    println!("| matmul | m x n x k | layout | {} |", COLUMNS.join(" | "));
    println!("|---|---|---|{}", "---:|".repeat(COLUMNS.len()));
    let mut seconds = [0.0; COLUMNS.len()];
    for case in CASES {
        let best = Operands::new(case).measure(ours, threads);
        let Gemm { m, n, k, trans_a, trans_b, accumulate } = case.matmul;
        let layout = [trans_a, trans_b].map(|t| if t { 't' } else { 'n' });
        let rates = best.map(|s| format!("{:.0}", case.flops() / s / 1e9)).join(" | ");
        let add = if accumulate { " +=" } else { "" };
        println!("| {} | {m} x {n} x {k} | {}{}{add} | {rates} |", case.name, layout[0], layout[1]);
        for (sum, best) in seconds.iter_mut().zip(best) {
            *sum += best;
        }
    }
    let sums = seconds.map(|s| format!("{:.1}", s * 1e3)).join(" | ");
    println!("| sum of times, ms | | | {sums} |");
}

/// Cache-line-aligned elements, as in the runtime's buffers.
struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Clone> Aligned<T> {
    fn new(len: usize, zero: T, value: impl Fn(usize) -> T) -> Self {
        let mut memory = vec![zero; len + 64];
        let start = memory.as_ptr().align_offset(64);
        for (i, to) in memory[start..start + len].iter_mut().enumerate() {
            *to = value(i);
        }
        Aligned { memory, start, len }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

struct Operands<'a> {
    case: &'a Case,
    a: Aligned<f32>,
    b: Aligned<f32>,
    c: Aligned<f32>,
    narrow_a: Aligned<bf16>,
    narrow_b: Aligned<bf16>,
    narrow_c: Aligned<bf16>,
}

impl<'a> Operands<'a> {
    fn new(case: &'a Case) -> Self {
        let Gemm { m, n, k, .. } = case.matmul;
        let value = |i: usize| (i * 7919 % 1000) as f32 * 1e-3 - 0.5;
        let wide = |len| Aligned::new(len, 0.0, value);
        let narrow = |len| Aligned::new(len, bf16::ZERO, |i| bf16::from_f32(value(i)));
        Operands {
            case,
            a: wide(m * k),
            b: wide(k * n),
            c: wide(m * n),
            narrow_a: narrow(m * k),
            narrow_b: narrow(k * n),
            narrow_c: narrow(m * n),
        }
    }

    /// Returns the seconds of each implementation. They alternate, so that a busy machine affects all alike.
    fn measure(&mut self, ours: &CpuBackend, threads: usize) -> [f64; COLUMNS.len()] {
        let repeats = (2e7 / self.case.flops()).ceil() as usize;
        let mut best = [f64::INFINITY; COLUMNS.len()];
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(3000) {
            for (column, best) in best.iter_mut().enumerate() {
                let run = Instant::now();
                for _ in 0..repeats {
                    self.run(column, ours, threads);
                }
                *best = best.min(run.elapsed().as_secs_f64() / repeats as f64);
            }
        }
        best
    }

    fn run(&mut self, column: usize, ours: &CpuBackend, threads: usize) {
        let matmul = &self.case.matmul;
        match column {
            0 => run_gemm(ours, matmul, &self.a, &self.b, &mut self.c),
            // Weight gradients are accumulated in f32.
            1 if matmul.accumulate => {
                run_gemm(ours, matmul, &self.narrow_a, &self.narrow_b, &mut self.c);
            }
            1 => run_gemm(ours, matmul, &self.narrow_a, &self.narrow_b, &mut self.narrow_c),
            2 => self.with_gemmkit(threads),
            3 => self.with_gemm(threads),
            _ => self.with_matrixmultiply(),
        }
    }

    fn with_gemmkit(&mut self, threads: usize) {
        let Gemm { m, n, k, accumulate, .. } = self.case.matmul;
        let [(a_row, a_col), (b_row, b_col)] = self.case.strides();
        let parallelism = match threads {
            1 => gemmkit::Parallelism::Serial,
            _ => gemmkit::Parallelism::Rayon(threads),
        };
        let a = gemmkit::MatRef::new(&self.a, m, k, a_row, a_col);
        let b = gemmkit::MatRef::new(&self.b, k, n, b_row, b_col);
        let c = gemmkit::MatMut::from_row_major(&mut self.c, m, n);
        gemmkit::gemm(1.0, a, b, f32::from(u8::from(accumulate)), c, parallelism);
    }

    fn with_gemm(&mut self, threads: usize) {
        let Gemm { m, n, k, accumulate, .. } = self.case.matmul;
        let [(a_row, a_col), (b_row, b_col)] = self.case.strides();
        let parallelism = match threads {
            1 => gemm::Parallelism::None,
            _ => gemm::Parallelism::Rayon(threads),
        };
        // SAFETY: the operands have the sizes of the matmul, and contiguous rows.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                self.c.as_mut_ptr(),
                1,
                n as isize,
                accumulate,
                self.a.as_ptr(),
                a_col,
                a_row,
                self.b.as_ptr(),
                b_col,
                b_row,
                f32::from(u8::from(accumulate)),
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }

    /// Single-threaded: the crate has no thread pool that could be shared.
    fn with_matrixmultiply(&mut self) {
        let Gemm { m, n, k, accumulate, .. } = self.case.matmul;
        let [(a_row, a_col), (b_row, b_col)] = self.case.strides();
        let beta = f32::from(u8::from(accumulate));
        let (a, b, c) = (self.a.as_ptr(), self.b.as_ptr(), self.c.as_mut_ptr());
        // SAFETY: as above.
        unsafe {
            matrixmultiply::sgemm(
                m, k, n, 1.0, a, a_row, a_col, b, b_row, b_col, beta, c, n as isize, 1,
            );
        }
    }
}

fn run_gemm<T: Element, C: Element>(ours: &CpuBackend, matmul: &Gemm, a: &[T], b: &[T], c: &mut [C])
where
    for<'a> View<'a>: From<&'a [T]>,
    for<'a> ViewMut<'a>: From<&'a mut [C]>,
{
    ours.gemm(matmul, View::from(a), View::from(b), ViewMut::from(c));
}

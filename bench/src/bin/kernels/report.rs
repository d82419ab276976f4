//! Times of kernels next to the limits of the machine.

use std::cell::Cell;
use std::time::{Duration, Instant};

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Backend, BlockCopy, Gemm, MatmulOps};

use crate::{HIDDEN, TOKENS, filled, view, view_mut};

/// The work of one call.
pub enum Work {
    /// Floating-point operations.
    Flops(usize),
    /// Minimum bytes read and written.
    Bytes(usize),
}

/// The backend under test, the limits of the machine, and the table being printed.
pub struct Report {
    pub cpu: CpuBackend,
    filter: String,
    peak: f64,
    bandwidth: f64,
    step: f64,
}

impl Report {
    /// Measures the limits. Only kernels whose names contain `filter` are reported.
    pub fn new(threads: usize, filter: String) -> Self {
        WALL_CLOCK.set(threads > 1);
        let cpu = CpuBackend::new(threads).expect("threads start");
        let peak = gemm_peak(&cpu);
        // Far larger than any cache.
        let (from, mut to) = (filled::<f32>(1 << 26, 1.0), filled::<f32>(1 << 26, 0.0));
        let n = from.len();
        let backend: &dyn Backend = &cpu;
        let seconds = best(|| {
            backend.copy_blocks(
                &BlockCopy {
                    blocks: 1,
                    len: n,
                    src_start: 0,
                    src_stride: n,
                    dst_start: 0,
                    dst_stride: n,
                },
                view(&from),
                view_mut(&mut to),
            )
        });
        let bandwidth = 8.0 * n as f64 / seconds;
        println!(
            "{} thread(s); GEMM peak {:.0} GFLOP/s in f32; copy bandwidth {:.1} GB/s",
            cpu.threads(),
            peak * 1e-9,
            bandwidth * 1e-9
        );
        Report { cpu, filter, peak, bandwidth, step: 0.0 }
    }

    /// Begins a table.
    pub fn table(&mut self, title: &str) {
        self.step = 0.0;
        println!("\n### {title}\n");
        println!(
            "| kernel | calls per step | ms per call | rate | of peak or copy | ms per step |"
        );
        println!("|---|---|---|---|---|---|");
    }

    /// Times a kernel that is called `calls` times in a training step.
    pub fn row(
        &mut self,
        name: &str,
        calls: usize,
        work: Work,
        mut call: impl FnMut(&dyn Backend),
    ) {
        if !name.contains(&self.filter) {
            return;
        }
        let seconds = best(|| call(&self.cpu));
        let (amount, limit, unit) = match work {
            Work::Flops(flops) => (flops as f64, self.peak, "GFLOP/s"),
            Work::Bytes(bytes) => (bytes as f64, self.bandwidth, "GB/s"),
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

    /// Ends a table with the sum of its last column.
    pub fn total(&self) {
        println!("| all | | | | | {:.0} |", self.step);
    }
}

/// Returns the FLOP/s of an f32 matmul that fits into the cache.
fn gemm_peak(cpu: &CpuBackend) -> f64 {
    let (m, n, k) = (TOKENS, HIDDEN, HIDDEN);
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let (a, b) = (filled::<f32>(m * k, 0.5), filled::<f32>(k * n, 0.5));
    let mut c = filled::<f32>(m * n, 0.0);
    let seconds = best(|| cpu.gemm(&gemm, view(&a), view(&b), view_mut(&mut c)));
    2.0 * (m * n * k) as f64 / seconds
}

thread_local! {
    static WALL_CLOCK: Cell<bool> = const { Cell::new(true) };
}

/// Returns the current time in seconds: CPU time with one thread, else wall-clock time.
fn now() -> f64 {
    let clock =
        if WALL_CLOCK.get() { libc::CLOCK_MONOTONIC } else { libc::CLOCK_THREAD_CPUTIME_ID };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "the clock exists");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the minimum time of many calls, in seconds.
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

//! Measurement, and the rows of a report.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright::backend::{
    Backend, BlockIndex, Buffer, CachingAllocator, Category, DType, Device, StreamKind,
};
use serde_json::{Value, json};

/// Minimum work of a kernel, relative to which its time is reported.
#[derive(Clone, Copy)]
pub enum Work {
    /// Floating-point operations of matmuls with bf16 operands.
    Flops(f64),
    /// Bytes read and written.
    Bytes(f64),
}

/// Fraction of the copy bandwidth that a memory-bound kernel should reach; lower rows are printed in bold.
const GOAL: f64 = 0.85;

/// Durations of measurements.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Number of series; the fastest counts.
    pub series: usize,
    /// Minimum duration of a series.
    pub at_least: Duration,
    /// Launches for measuring launch overhead: few enough to fit into the queue of the GPU.
    pub few: u32,
    /// Duration of a sustained row.
    pub sustained: Duration,
}

impl Effort {
    /// Durations for published results.
    pub const FULL: Effort = Effort {
        series: 5,
        at_least: Duration::from_millis(20),
        few: 16,
        sustained: Duration::from_secs(3),
    };
}

/// Time of one launch.
struct Times {
    /// Device time, if it exceeds the launch overhead.
    seconds: f64,
    /// Launch overhead.
    host: f64,
}

/// A device under test, its limits once [measured](Report::measure_limit), and the output.
pub struct Report<'a> {
    backend: Arc<dyn Backend>,
    device: Arc<dyn Device>,
    allocator: Arc<CachingAllocator>,
    filter: String,
    effort: Effort,
    copy: f64,
    matmul: f64,
    seed: u64,
    table: String,
    /// Receives each row after its measurement.
    sink: &'a mut dyn FnMut(&Value),
}

impl<'a> Report<'a> {
    /// Creates a report of the kernels whose names contain `filter`.
    pub fn new(
        backend: Arc<dyn Backend>,
        filter: &str,
        effort: Effort,
        sink: &'a mut dyn FnMut(&Value),
    ) -> Report<'a> {
        let device = backend.device().expect("a GPU has memory of its own");
        let allocator = CachingAllocator::on(Some(Arc::clone(&device)), usize::MAX);
        let (filter, table) = (filter.to_owned(), String::new());
        Report {
            backend,
            device,
            allocator,
            filter,
            effort,
            copy: 0.0,
            matmul: 0.0,
            seed: 0,
            table,
            sink,
        }
    }

    /// Begins a table.
    pub fn table(&mut self, title: &str) {
        self.table = title.to_owned();
        let header = "| kernel | ms | rate | of the limit | host, µs |\n|---|---|---|---|---|";
        println!("\n## {title}\n\n{header}");
    }

    /// Measures the limit of later rows of the same kind of work.
    pub fn measure_limit(&mut self, work: Work, kernel: impl FnMut(&dyn Backend)) {
        let seconds = self.times(kernel).seconds;
        match work {
            Work::Flops(count) => self.matmul = count / seconds,
            Work::Bytes(count) => self.copy = count / seconds,
        }
    }

    /// Measures `kernel` and prints its row.
    pub fn row(&mut self, name: &str, work: Work, kernel: impl FnMut(&dyn Backend)) {
        if name.contains(&self.filter) {
            let times = self.times(kernel);
            self.print(name, work, times);
        }
    }

    /// Adds a row like [`row`](Self::row), for a kernel that returns true if the device supports it; otherwise the row
    /// says so.
    pub fn row_if(&mut self, name: &str, work: Work, mut kernel: impl FnMut(&dyn Backend) -> bool) {
        if !name.contains(&self.filter) {
            return;
        }
        if kernel(&*self.backend) {
            return self.row(name, work, |backend| {
                assert!(kernel(backend), "a kernel that ran before");
            });
        }
        println!("| {name} | | | NOT FUSED | |");
        let (table, unit) = (&self.table, "");
        let zero = 0.0;
        (self.sink)(&json!({
            "table": table, "name": name, "ms": zero, "rate": zero, "unit": unit,
            "share": Value::Null, "host_us": zero, "note": "NOT FUSED",
        }));
    }

    /// Adds a row like [`row`](Self::row), averaged over seconds.
    pub fn sustained_row(&mut self, name: &str, work: Work, mut kernel: impl FnMut(&dyn Backend)) {
        if !name.contains(&self.filter) {
            return;
        }
        let host = self.times(&mut kernel).host;
        let (start, mut runs) = (Instant::now(), 0);
        let batch = self.runs(&mut kernel);
        let seconds = loop {
            self.timed(&mut kernel, batch);
            runs += batch;
            let elapsed = start.elapsed();
            if elapsed >= self.effort.sustained {
                break elapsed.as_secs_f64() / f64::from(runs);
            }
        };
        self.print(name, work, Times { seconds, host });
    }

    fn print(&mut self, name: &str, work: Work, Times { seconds, host }: Times) {
        let (rate, unit, limit) = match work {
            Work::Flops(count) => (count / seconds * 1e-12, "TFLOP/s", self.matmul * 1e-12),
            Work::Bytes(count) => (count / seconds * 1e-9, "GB/s", self.copy * 1e-9),
        };
        let share = rate / limit;
        let is_slow = matches!(work, Work::Bytes(_)) && share < GOAL;
        let mark = if is_slow { "**" } else { "" };
        let (ms, host) = (seconds * 1e3, host * 1e6);
        println!(
            "| {name} | {ms:.3} | {rate:.0} {unit} | {mark}{:.0} %{mark} | {host:.0} |",
            100.0 * share
        );
        (self.sink)(&json!({
            "table": self.table, "name": name, "ms": ms, "rate": rate, "unit": unit,
            "share": share, "host_us": host,
        }));
    }

    /// Allocates `len` elements of output.
    pub fn alloc(&self, dtype: DType, len: usize) -> Buffer {
        self.allocator.alloc(dtype, len, Category::Workspace)
    }

    /// Returns `len` random numbers.
    pub fn random(&mut self, dtype: DType, len: usize) -> Buffer {
        self.seed += 1;
        let mut wide = self.alloc(DType::F32, len);
        self.backend.fill_normal(self.seed, 1.0, &BlockIndex::whole(&[len]), wide.view_mut());
        if dtype == DType::F32 {
            return wide;
        }
        let mut narrow = self.alloc(dtype, len);
        self.backend.cast(wide.view(), narrow.view_mut());
        narrow
    }

    /// Returns `len` uniformly distributed token ids below `vocab`.
    pub fn uniform_tokens(&self, len: usize, vocab: usize) -> Buffer {
        let ids: Vec<u32> = uniform(len).map(|u| (u * vocab as f64) as u32).collect();
        self.allocator.copy_of(&ids, Category::Workspace)
    }

    /// Returns `len` token ids below `vocab` distributed as in text: the token of rank r is 1/r as frequent as the
    /// first (Zipf), which is 7 % of 32000.
    pub fn zipf_tokens(&self, len: usize, vocab: usize) -> Buffer {
        let id = |u: f64| ((vocab as f64 + 1.0).powf(u) as u32 - 1).min(vocab as u32 - 1);
        let ids: Vec<u32> = uniform(len).map(id).collect();
        self.allocator.copy_of(&ids, Category::Workspace)
    }

    /// Measures the fastest of several series, each long enough for the timer's resolution.
    fn times(&self, mut kernel: impl FnMut(&dyn Backend)) -> Times {
        let Effort { series, few, .. } = self.effort;
        // The first run compiles the kernels.
        self.timed(&mut kernel, 1);
        let runs = self.runs(&mut kernel);
        let asked = (0..series).map(|_| self.timed(&mut kernel, few).1).min().unwrap_or_default();
        let best = (0..series).map(|_| self.timed(&mut kernel, runs).0).min().unwrap_or_default();
        let each = |time: Duration, runs: u32| time.as_secs_f64() / f64::from(runs);
        Times { seconds: each(best, runs), host: each(asked, few) }
    }

    /// Runs of a series.
    fn runs(&self, kernel: impl FnMut(&dyn Backend)) -> u32 {
        let one = self.timed(kernel, 1).0.as_secs_f64().max(1e-6);
        (self.effort.at_least.as_secs_f64() / one).ceil().clamp(1.0, 1e4) as u32
    }

    /// Returns the device time of `runs` launches and their launch overhead.
    fn timed(&self, mut kernel: impl FnMut(&dyn Backend), runs: u32) -> (Duration, Duration) {
        let start = Instant::now();
        (0..runs).for_each(|_| kernel(&*self.backend));
        let asked = start.elapsed();
        self.device.synchronize(&self.device.mark_stream(StreamKind::Compute));
        (start.elapsed(), asked)
    }
}

/// Returns random numbers in [0, 1).
fn uniform(len: usize) -> impl Iterator<Item = f64> {
    (0..len as u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64)
}

/// Appends each row to a file immediately.
pub fn append_to(mut file: std::fs::File) -> impl FnMut(&Value) {
    move |row| {
        writeln!(file, "{row}").expect("the file of --json can be written");
    }
}

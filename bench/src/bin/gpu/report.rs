//! Measuring, and the tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright::backend::cuda::Properties;
use meshwright::backend::{
    Backend, BlockIndex, Buffer, Category, DType, Device, Gemm, MemoryMeter, Queue,
};

/// What a kernel does at the least, by which its time is judged.
#[derive(Clone, Copy)]
pub enum Work {
    /// Floating-point operations of products, of bf16 operands unless they are `wide`.
    Flops { count: f64, wide: bool },
    /// Bytes read and written.
    Bytes(f64),
}

/// What a memory-bound kernel should reach of the rate of a copy; what does not is printed in bold.
const GOAL: f64 = 0.85;

/// How long one run takes.
struct Times {
    /// The device, where it is not the host that takes longer.
    seconds: f64,
    /// The host, to ask for it.
    host: f64,
}

/// The device under test, and its limits once they are measured.
pub struct Report {
    backend: Arc<dyn Backend>,
    device: Arc<dyn Device>,
    meter: Arc<MemoryMeter>,
    filter: String,
    copy: f64,
    product: f64,
    seed: u64,
}

impl Report {
    /// Of `backend`, for the kernels whose names contain `filter`.
    pub fn new(backend: Arc<dyn Backend>, filter: String) -> Report {
        let device = backend.device().expect("a GPU has memory of its own");
        let meter = MemoryMeter::on(Some(Arc::clone(&device)), usize::MAX);
        Report { backend, device, meter, filter, copy: 0.0, product: 0.0, seed: 0 }
    }

    /// Measures what bounds every kernel: a copy of 4 GiB, and a product of 8192 x 8192 x 8192.
    pub fn limits(&mut self, properties: &Properties) {
        let Properties { name, capability: (major, minor), multiprocessors, .. } = properties;
        println!("{name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors\n");
        println!("| limit | ms | rate |\n|---|---|---|");
        let len = 1 << 30;
        let (src, mut dst) = (self.random(DType::F32, len), self.room(DType::F32, len));
        let Times { seconds, .. } = self.times(|backend| backend.cast(src.view(), dst.view_mut()));
        self.copy = 8.0 * len as f64 / seconds;
        println!("| copy of 4 GiB | {:.3} | {:.0} GB/s |", seconds * 1e3, self.copy * 1e-9);
        drop((src, dst));
        let size = 8192;
        let [a, b] = [(); 2].map(|()| self.random(DType::Bf16, size * size));
        let mut c = self.room(DType::Bf16, size * size);
        let product =
            Gemm { m: size, n: size, k: size, trans_a: false, trans_b: true, accumulate: false };
        let Times { seconds, .. } =
            self.times(|backend| backend.gemm(&product, a.view(), b.view(), c.view_mut()));
        self.product = 2.0 * (size * size * size) as f64 / seconds;
        let rate = self.product * 1e-12;
        println!("| product of 8192^3, bf16 | {:.3} | {rate:.0} TFLOP/s |", seconds * 1e3);
    }

    /// Begins a table.
    pub fn table(&self, title: &str) {
        println!(
            "\n## {title}\n\n| kernel | ms | rate | of the limit | host, µs |\n|---|---|---|---|---|"
        );
    }

    /// Measures `kernel` and prints its row.
    pub fn row(&mut self, name: &str, work: Work, kernel: impl FnMut(&dyn Backend)) {
        if !name.contains(&self.filter) {
            return;
        }
        let Times { seconds, host } = self.times(kernel);
        let (rate, unit, limit) = match work {
            Work::Flops { count, wide: false } => {
                (count / seconds * 1e-12, "TFLOP/s", Some(self.product * 1e-12))
            }
            Work::Flops { count, wide: true } => (count / seconds * 1e-12, "TFLOP/s", None),
            Work::Bytes(bytes) => (bytes / seconds * 1e-9, "GB/s", Some(self.copy * 1e-9)),
        };
        let share = limit.map_or(String::new(), |limit| {
            let percent = format!("{:.0} %", 100.0 * rate / limit);
            let is_slow = matches!(work, Work::Bytes(_)) && rate < GOAL * limit;
            if is_slow { format!("**{percent}**") } else { percent }
        });
        let (ms, host) = (seconds * 1e3, host * 1e6);
        println!("| {name} | {ms:.3} | {rate:.0} {unit} | {share} | {host:.0} |");
    }

    /// `len` elements to be written.
    pub fn room(&self, dtype: DType, len: usize) -> Buffer {
        self.meter.alloc(dtype, len, Category::Workspace)
    }

    /// `len` random numbers.
    pub fn random(&mut self, dtype: DType, len: usize) -> Buffer {
        self.seed += 1;
        let mut wide = self.room(DType::F32, len);
        self.backend.normal(self.seed, 1.0, &BlockIndex::whole(&[len]), wide.view_mut());
        if dtype == DType::F32 {
            return wide;
        }
        let mut narrow = self.room(dtype, len);
        self.backend.cast(wide.view(), narrow.view_mut());
        narrow
    }

    /// `len` random token ids below `vocab`.
    pub fn tokens(&self, len: usize, vocab: usize) -> Buffer {
        let id = |index: usize| ((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize;
        let ids: Vec<u32> = (0..len).map(|index| (id(index) % vocab) as u32).collect();
        self.meter.copy_of(&ids, Category::Workspace)
    }

    /// The best of several series, each as long as it takes to be timed well.
    fn times(&self, mut kernel: impl FnMut(&dyn Backend)) -> Times {
        const SERIES: usize = 5;
        const FEW: u32 = 16;
        const AT_LEAST: Duration = Duration::from_millis(20);
        let mut timed = |runs: u32| {
            let start = Instant::now();
            (0..runs).for_each(|_| kernel(&*self.backend));
            let asked = start.elapsed();
            self.device.synchronize(&self.device.mark(Queue::Compute));
            (start.elapsed(), asked)
        };
        // The first run compiles, the second one is typical.
        timed(1);
        let runs =
            (AT_LEAST.as_secs_f64() / timed(1).0.as_secs_f64().max(1e-6)).ceil().min(1e4) as u32;
        // So few that the device takes all of them in before it is done: the host waits for nothing.
        let (_, asked) =
            (0..SERIES).map(|_| timed(FEW)).min_by_key(|(_, asked)| *asked).unwrap_or_default();
        let (best, _) = (0..SERIES).map(|_| timed(runs)).min().unwrap_or_default();
        let each = |time: Duration, runs: u32| time.as_secs_f64() / f64::from(runs);
        Times { seconds: each(best, runs), host: each(asked, FEW) }
    }
}

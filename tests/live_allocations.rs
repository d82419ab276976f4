//! The memory of a run does not grow with its steps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, LazyLock, Mutex};

use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::optim::{AdamWOptions, FlatSlice, Group, UpdateRule, Updated};
use meshwright::train::{Config, LanguageModel, OptimizerEntry, Optimizers, Trainer};

/// The allocator of the system, which counts what is allocated.
struct Counting;

/// Allocations that live, and their bytes.
static LIVE: [AtomicI64; 2] = [AtomicI64::new(0), AtomicI64::new(0)];

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(allocations: i64, bytes: i64) {
    LIVE[0].fetch_add(allocations, Ordering::Relaxed);
    LIVE[1].fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: the allocator of the system does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-1, -(layout.size() as i64));
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(0, new_size as i64 - layout.size() as i64);
        // SAFETY: as the caller guarantees.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Live allocations, and their bytes, at steps that are a multiple of [`EVERY`].
static SEEN: Mutex<BTreeMap<u64, [i64; 2]>> = Mutex::new(BTreeMap::new());

/// Steps between two samples.
const EVERY: u64 = 20;

/// Ranks of each run.
const RANKS: usize = 4;

/// All ranks are in their first update of a step: at any other time one may be ahead of others, and hold more.
static ALL_RANKS: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(RANKS));

thread_local! {
    /// The last step that this rank has sampled.
    static SAMPLED: Cell<u64> = const { Cell::new(0) };
}

/// AdamW, which notes the live allocations of all ranks.
#[derive(Debug)]
struct Observed(AdamWOptions);

impl UpdateRule for Observed {
    fn name(&self) -> &str {
        "observed"
    }

    fn state_kinds(&self, group: Group) -> &'static [&'static str] {
        self.0.state_kinds(group)
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let step = slice.step().number();
        if step % EVERY == 0 && SAMPLED.replace(step) != step {
            ALL_RANKS.wait();
            if slice.step().rank().index() == 0 {
                let live = [0, 1].map(|which| LIVE[which].load(Ordering::Relaxed));
                SEEN.lock().unwrap().insert(step, live);
            }
            ALL_RANKS.wait();
        }
        self.0.update(slice)
    }
}

/// Trains for `steps` steps with `flags`, and compares the last samples with early ones.
fn assert_constant<M: LanguageModel>(steps: u64, flags: &str) {
    let entry = OptimizerEntry::new("observed", |_| Observed(AdamWOptions::default()));
    let line = format!(
        "train --hidden 16 --layers 2 --heads 4 --kv-heads 2 --ffn 16 --vocab 256 --seq 8 --batch 8 --threads 1 \
         --optimizer observed --sample-tokens 0 --steps {steps} {flags}"
    );
    let config = Config::parse_with(line.split_whitespace(), &Optimizers::default().with(entry));
    let summary = Trainer::<M>::new(config.unwrap()).unwrap().train().unwrap();
    assert_eq!(summary.losses.len() as u64, steps);
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    // The least of five: blocks on their way between ranks are in one of two pools, or in none.
    let least = |steps: Range<u64>| {
        let samples = || seen.range(steps.clone()).map(|(_, live)| live);
        [0, 1].map(|which| samples().map(|live| live[which]).min().unwrap())
    };
    let ([allocations, bytes], last) = (least(200..300), least(steps - 100..steps));
    let grown = [last[0] - allocations, last[1] - bytes];
    println!("{flags}: {allocations} allocations of {bytes} bytes, and {grown:?} more at the end");
    // One allocation of a few bytes in every twentieth step would be more.
    assert!(grown[0] < (steps / 20) as i64, "{flags}: {} more allocations", grown[0]);
    // Rank 0 keeps loss, gradient norm and rate, in vectors that double their capacity. The pool of a rank keeps blocks
    // for some while; their sizes follow from the rows that its experts had.
    let routed = if flags.contains("ep=") { 20_000 } else { 0 };
    let kept = 2 * 3 * 8 * steps + 4096 + routed;
    assert!(grown[1] < kept as i64, "{flags}: {} more bytes", grown[1]);
}

/// One test, because the tests of a program share its allocator.
#[test]
fn memory_is_constant_over_steps() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    assert_constant::<Llama>(2400, "--mesh dp=2,tp=2");
    let metrics = file("metrics.jsonl");
    let flags = format!("--mesh fsdp=4 --zero 3 --micro-batches 2 --metrics {metrics}");
    assert_constant::<Llama>(600, &flags);
    let pipeline = "--mesh pp=2,fsdp=2 --zero 2 --micro-batches 4 --schedule zb-h1";
    assert_constant::<Llama>(600, &format!("{pipeline} --ema 0.9"));
    let save = format!("--save {} --save-every 50 --keep 2 --save-async", file("run"));
    assert_constant::<Llama>(600, &format!("--mesh cp=2,fsdp=2 --recompute full {save}"));
    // So many steps that the routers have settled: rows of other numbers are blocks of other sizes. The text is not the
    // book's, which changes.
    let text: String = (0..4000).map(|n| format!("{n} times {n} is {}\n", n * n)).collect();
    std::fs::write(file("text.txt"), text).unwrap();
    let flags = format!("--mesh ep=2,dp=2 --micro-batches 2 --data {}", file("text.txt"));
    assert_constant::<Mixtral>(2400, &flags);
}

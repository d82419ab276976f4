//! Autotuning of large matmuls.

use std::path::PathBuf;
use std::sync::Arc;

use meshwright::backend::{DType, Gemm};
use meshwright_cuda::native::{NativeDriver, NativeOptions};
use meshwright_cuda::{
    ChoiceOrigin, Driver, DriverCalls, MatMul, MatMulChoice, MatMulEpilogue, MatMulOperands, Stream,
};

use super::matmul::{MATMUL_LOCK, stub_number};
use super::{download, folders, free, upload};

/// A matmul of matrices of ones that is large enough for autotuning, and a driver for it.
struct LargeMatMul {
    driver: Arc<NativeDriver>,
    stream: Stream,
    rows: usize,
    operands: [u64; 3],
}

impl LargeMatMul {
    const SIZE: usize = 1024;

    /// Creates a matmul with this number of rows. Choices are cached in files, so each test uses its own sizes.
    fn new(allow_nondeterministic: bool, rows: usize) -> LargeMatMul {
        folders();
        let options = NativeOptions { allow_nondeterministic, attention: None };
        let driver = NativeDriver::with_options(0, options).unwrap();
        let stream = driver.new_stream(false).unwrap();
        let ones = vec![1.0f32; rows.max(LargeMatMul::SIZE) * LargeMatMul::SIZE];
        let operands = [(); 3].map(|()| upload(&driver, stream, &ones));
        LargeMatMul { driver, stream, rows, operands }
    }

    /// Returns the files of cached choices for this number of rows.
    fn cached(&self) -> Vec<PathBuf> {
        let name = format!("matmul-{}x", self.rows);
        let files = std::fs::read_dir(&folders().1).unwrap().map(|file| file.unwrap().path());
        files
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&name))
            .collect()
    }

    /// Accumulates to the last operand; returns the number of library executions and the last algorithm.
    fn accumulate(&self) -> (i32, i32) {
        self.accumulate_rows(false)
    }

    /// [`accumulate`](Self::accumulate)s as a matmul of a grouped GEMM, or as another one.
    fn accumulate_rows(&self, is_grouped: bool) -> (i32, i32) {
        let (m, n, k) = (self.rows, LargeMatMul::SIZE, LargeMatMul::SIZE);
        let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: true };
        let (inputs, result) = (DType::F32, DType::F32);
        let shape = MatMul {
            gemm,
            inputs,
            result,
            epilogue: MatMulEpilogue::Plain,
            is_grouped,
            batch: None,
        };
        let before = stub_number("stub_runs");
        let [a, b, c] = self.operands;
        // SAFETY: the matrices have these sizes.
        unsafe { self.driver.matmul(self.stream, &shape, &MatMulOperands::plain(a, b, c)) }
            .unwrap();
        (stub_number("stub_runs") - before, stub_number("stub_algorithm"))
    }
}

impl Drop for LargeMatMul {
    fn drop(&mut self) {
        free(&self.driver, &self.operands);
        // The library's workspace is accounted while its stream exists; the autotuning operands are freed.
        assert!(self.driver.workspace_bytes(self.stream) > 0);
        let other = self.driver.new_stream(false).unwrap();
        assert_eq!(self.driver.workspace_bytes(other), 0);
        self.driver.free_stream(other).unwrap();
        self.driver.free_stream(self.stream).unwrap();
        assert_eq!(self.driver.workspace_bytes(self.stream), 0);
    }
}

/// Library executions of an autotuned matmul, including the matmul itself. Of four algorithms one is refused, three run
/// for comparison, and the permitted ones once to determine the launches per round. Three rounds follow; an algorithm
/// far behind the best is timed only once.
const AUTOTUNE_RUNS: i32 = 3 + 2 + (2 + 1 + 1) + 1;

#[test]
fn fastest_bitwise_equal_algorithm_is_used() {
    let _alone = MATMUL_LOCK.lock();
    let large = LargeMatMul::new(false, 1024);
    // The second algorithm is faster, but sums in another order.
    assert_eq!(large.accumulate(), (AUTOTUNE_RUNS, 3));
    assert_eq!(large.accumulate(), (1, 3));
    // Autotuning did not change the accumulator.
    let size = LargeMatMul::SIZE;
    let result = download::<f32>(&large.driver, large.stream, large.operands[2], size * size);
    assert!(result.iter().all(|value| *value == 2.0 * size as f32 + 1.0));

    let [MatMulChoice { configuration, workspace, origin, .. }] =
        &large.driver.algorithm_choices().matmuls[..]
    else {
        panic!("one matmul")
    };
    assert_eq!(configuration, "algorithm 3 tile 11 stages 16 split-k 12");
    assert_eq!(*workspace, 3000);
    let ChoiceOrigin::Autotuned { algorithm: 3, timings } = origin else { panic!("{origin:?}") };
    let outcomes: Vec<_> =
        timings.iter().map(|timing| (timing.algorithm, timing.same_bits)).collect();
    assert_eq!(outcomes, [(0, true), (1, false), (3, true)]);
    assert!(timings[1].milliseconds.is_none() && timings[2].milliseconds.unwrap() < 2.1);
}

#[test]
fn nondeterministic_option_permits_any_algorithm() {
    let _alone = MATMUL_LOCK.lock();
    let large = LargeMatMul::new(true, 1024);
    assert_eq!(large.accumulate(), (3 + 3 + (3 + 1 + 1) + 1, 1));
    assert_eq!(large.accumulate(), (1, 1));
}

/// The rows of an expert change in every step: nothing is autotuned or kept for them.
#[test]
fn grouped_matmuls_are_not_autotuned() {
    let _alone = MATMUL_LOCK.lock();
    let large = LargeMatMul::new(false, 1030);
    assert_eq!(large.accumulate_rows(true), (1, 0));
    assert_eq!(large.accumulate_rows(true), (1, 0));
    assert!(large.driver.algorithm_choices().matmuls.is_empty());
    assert!(large.cached().is_empty());
}

/// Another process, or another driver of this one, starts from the cached choice, also during capture.
#[test]
fn choices_are_cached_in_files() {
    let _alone = MATMUL_LOCK.lock();
    let first = LargeMatMul::new(false, 1025);
    assert_eq!(first.accumulate(), (AUTOTUNE_RUNS, 3));
    let second = LargeMatMul::new(false, 1025);
    assert_eq!(second.accumulate(), (1, 3));
    assert_eq!(second.driver.algorithm_choices().matmuls[0].origin, ChoiceOrigin::Cached);
    let third = LargeMatMul::new(false, 1025);
    third.driver.begin_capture(third.stream).unwrap();
    assert_eq!(third.accumulate(), (1, 3));
    let graph = third.driver.end_capture(third.stream).unwrap();
    third.driver.free_graph(graph).unwrap();
    // Other options have other cached choices.
    assert_eq!(LargeMatMul::new(true, 1025).accumulate().1, 1);

    // A damaged file, or an algorithm that the library does not accept, is autotuned again.
    let cached = first.cached();
    assert_eq!(cached.len(), 2);
    for file in &cached {
        let whole = std::fs::read(file).unwrap();
        std::fs::write(file, &whole[..whole.len() - 1]).unwrap();
    }
    assert_eq!(LargeMatMul::new(false, 1025).accumulate(), (AUTOTUNE_RUNS, 3));
    assert_eq!(LargeMatMul::new(false, 1025).accumulate(), (1, 3));
}

#[test]
fn no_autotuning_during_capture_or_without_memory() {
    let _alone = MATMUL_LOCK.lock();
    // The heuristic's first proposal is final if a later choice might not be bitwise equal.
    for (allow_nondeterministic, later) in [(false, (AUTOTUNE_RUNS, 3)), (true, (1, 0))] {
        let large = LargeMatMul::new(allow_nondeterministic, 1026);
        large.driver.begin_capture(large.stream).unwrap();
        assert_eq!(large.accumulate(), (1, 0));
        let graph = large.driver.end_capture(large.stream).unwrap();
        large.driver.free_graph(graph).unwrap();
        assert_eq!(large.accumulate(), later, "nondeterministic: {allow_nondeterministic}");
    }

    let large = LargeMatMul::new(false, 1027);
    set_stub_memory(4 << 20);
    assert_eq!(large.accumulate(), (1, 0));
    assert_eq!(large.accumulate(), (1, 0));
    set_stub_memory(80 << 30);
    assert!(large.cached().is_empty(), "nothing was autotuned");
}

/// Sets the free memory that the driver's stub reports.
fn set_stub_memory(bytes: usize) {
    let path = folders().0.join("libcuda.so.1");
    // SAFETY: the stub is already loaded, and only tests that hold the lock access its `size_t`.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        **library.get::<*mut usize>("stub_memory").unwrap() = bytes;
    }
}

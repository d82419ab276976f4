//! Large products, of which several ways are tried.

use std::path::PathBuf;
use std::sync::Arc;

use meshwright::backend::cuda::native::{NativeDriver, NativeOptions};
use meshwright::backend::cuda::{
    Driver, Ending, MatMul, MatMulOperands, Origin, ProductChoice, Stream,
};
use meshwright::backend::{DType, Gemm};

use super::products::{PRODUCTS, stub_number};
use super::{download, folders, free, upload};

/// A product that is large enough to be tried in several ways, of matrices of ones, and a driver for it.
struct Large {
    driver: Arc<NativeDriver>,
    stream: Stream,
    rows: usize,
    operands: [u64; 3],
}

impl Large {
    const SIZE: usize = 1024;

    /// With so many rows of the result. What is chosen is kept in files, so that tests that try have sizes of their own.
    fn new(any_bits: bool, rows: usize) -> Large {
        folders();
        let options = NativeOptions { any_bits, attention: None };
        let driver = NativeDriver::with_options(0, options).unwrap();
        let stream = driver.new_stream(false).unwrap();
        let ones = vec![1.0f32; rows.max(Large::SIZE) * Large::SIZE];
        let operands = [(); 3].map(|()| upload(&driver, stream, &ones));
        Large { driver, stream, rows, operands }
    }

    /// Files of choices for this number of rows.
    fn kept(&self) -> Vec<PathBuf> {
        let name = format!("matmul-{}x", self.rows);
        let files = std::fs::read_dir(&folders().1).unwrap().map(|file| file.unwrap().path());
        files
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&name))
            .collect()
    }

    /// Adds the product to the last operand; gives how often the library was run for it, and in which way the last time.
    fn add(&self) -> (i32, i32) {
        let (m, n, k) = (self.rows, Large::SIZE, Large::SIZE);
        let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: true };
        let (factors, result) = (DType::F32, DType::F32);
        let shape = MatMul { gemm, factors, result, ending: Ending::Plain };
        let before = stub_number("stub_runs");
        let [a, b, c] = self.operands;
        // SAFETY: the matrices are of these sizes.
        unsafe { self.driver.matmul(self.stream, &shape, &MatMulOperands::plain(a, b, c)) }
            .unwrap();
        (stub_number("stub_runs") - before, stub_number("stub_algorithm"))
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        free(&self.driver, &self.operands);
        // The library's scratch is counted as long as its stream is there; what was tried with is given back.
        assert!(self.driver.scratch_bytes(&[self.stream]) > 0);
        assert_eq!(self.driver.scratch_bytes(&[]), 0);
        self.driver.free_stream(self.stream).unwrap();
        assert_eq!(self.driver.scratch_bytes(&[self.stream]), 0);
    }
}

/// Runs of the library for a large product that is tried, and the product. Of four ways one is refused, three are run for
/// their bits, and those that may be chosen once to find how many launches make a round. Then there are three rounds, in
/// which a way far behind the best is timed only once.
const TRIED: i32 = 3 + 2 + (2 + 1 + 1) + 1;

#[test]
fn large_products_are_computed_in_the_fastest_way_of_the_same_bits() {
    let _alone = PRODUCTS.lock();
    let large = Large::new(false, 1024);
    // The second would be faster, but adds in another order.
    assert_eq!(large.add(), (TRIED, 3));
    assert_eq!(large.add(), (1, 3));
    // What is added to was not changed by trying.
    let size = Large::SIZE;
    let result = download::<f32>(&large.driver, large.stream, large.operands[2], size * size);
    assert!(result.iter().all(|value| *value == 2.0 * size as f32 + 1.0));

    let [ProductChoice { settings, workspace, origin, .. }] = &large.driver.choices().products[..]
    else {
        panic!("one product")
    };
    assert_eq!(settings, "algorithm 3 tile 11 stages 16 split-k 12");
    assert_eq!(*workspace, 3000);
    let Origin::Tried { way: 3, trials } = origin else { panic!("{origin:?}") };
    let ways: Vec<_> = trials.iter().map(|trial| (trial.way, trial.same_bits)).collect();
    assert_eq!(ways, [(0, true), (1, false), (3, true)]);
    assert!(trials[1].milliseconds.is_none() && trials[2].milliseconds.unwrap() < 2.1);
}

#[test]
fn large_products_are_computed_in_the_fastest_way_of_any_bits_if_that_is_wanted() {
    let _alone = PRODUCTS.lock();
    let large = Large::new(true, 1024);
    assert_eq!(large.add(), (3 + 3 + (3 + 1 + 1) + 1, 1));
    assert_eq!(large.add(), (1, 1));
}

/// Another process, or another driver of this one, begins with what was chosen before, also inside of a recording.
#[test]
fn choices_are_kept_in_files() {
    let _alone = PRODUCTS.lock();
    let first = Large::new(false, 1025);
    assert_eq!(first.add(), (TRIED, 3));
    let second = Large::new(false, 1025);
    assert_eq!(second.add(), (1, 3));
    assert_eq!(second.driver.choices().products[0].origin, Origin::Kept);
    let third = Large::new(false, 1025);
    third.driver.begin_capture(third.stream).unwrap();
    assert_eq!(third.add(), (1, 3));
    let graph = third.driver.end_capture(third.stream).unwrap();
    third.driver.free_graph(graph).unwrap();
    // With other rules there are other choices.
    assert_eq!(Large::new(true, 1025).add().1, 1);

    // What is damaged, or not an algorithm that the library takes, is found out again.
    let kept = first.kept();
    assert_eq!(kept.len(), 2);
    for file in &kept {
        let whole = std::fs::read(file).unwrap();
        std::fs::write(file, &whole[..whole.len() - 1]).unwrap();
    }
    assert_eq!(Large::new(false, 1025).add(), (TRIED, 3));
    assert_eq!(Large::new(false, 1025).add(), (1, 3));
}

#[test]
fn nothing_is_tried_while_work_is_recorded_or_without_memory_to_spare() {
    let _alone = PRODUCTS.lock();
    // The first proposal is for good where what is tried later may have other bits.
    for (any_bits, later) in [(false, (TRIED, 3)), (true, (1, 0))] {
        let large = Large::new(any_bits, 1026);
        large.driver.begin_capture(large.stream).unwrap();
        assert_eq!(large.add(), (1, 0));
        let graph = large.driver.end_capture(large.stream).unwrap();
        large.driver.free_graph(graph).unwrap();
        assert_eq!(large.add(), later, "any bits: {any_bits}");
    }

    let large = Large::new(false, 1027);
    set_stub_memory(4 << 20);
    assert_eq!(large.add(), (1, 0));
    assert_eq!(large.add(), (1, 0));
    set_stub_memory(80 << 30);
    assert!(large.kept().is_empty(), "nothing was found out");
}

/// Makes the stub of the driver say that so many bytes are unused.
fn set_stub_memory(bytes: usize) {
    let path = folders().0.join("libcuda.so.1");
    // SAFETY: the stub is loaded already, and its number is a `size_t` that tests of products alone change and read.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        **library.get::<*mut usize>("stub_memory").unwrap() = bytes;
    }
}

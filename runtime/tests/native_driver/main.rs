//! The driver over the vendor's libraries, with libraries that stand in for them: what it asks of which, in which order,
//! and what it makes of their answers. They are in `stubs`, and check what they are called with.
#![cfg(feature = "cuda")]

mod stubs;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use meshwright::backend::cuda::native::{NativeDriver, NativeOptions, cuda_available, probe};
use meshwright::backend::cuda::{
    Driver, DriverError, Ending, Function, Grid, MatMul, MatMulOperands, Origin, ProductChoice,
    Source, Stream,
};
use meshwright::backend::{DType, Gemm};

/// The folders of the libraries and of the cache, which the environment names from the first use on.
fn folders() -> &'static (PathBuf, PathBuf) {
    static FOLDERS: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let folders = (dir.join("libraries"), dir.join("cache"));
        std::fs::create_dir(&folders.0).unwrap();
        stubs::make_all(&folders.0, &[]);
        // SAFETY: every test begins here, so that no other thread of this process reads the environment yet.
        unsafe {
            std::env::set_var("MESHWRIGHT_CUDA_LIBS", &folders.0);
            std::env::set_var("MESHWRIGHT_CACHE", &folders.1);
        }
        folders
    })
}

fn driver() -> Arc<NativeDriver> {
    folders();
    NativeDriver::new(0).unwrap()
}

fn source(name: &'static str, text: &'static str) -> Source {
    Source { name: name.into(), text: text.into() }
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Copies values to new device memory.
fn upload<T: bytemuck::NoUninit>(driver: &NativeDriver, stream: Stream, values: &[T]) -> u64 {
    let address = driver.alloc(size_of_val(values)).unwrap();
    let from = values.as_ptr().cast::<c_void>();
    // SAFETY: there is room for the values, and the stub copies at once.
    unsafe { driver.upload(stream, address, from, size_of_val(values)) }.unwrap();
    address
}

fn download<T: bytemuck::Pod>(
    driver: &NativeDriver,
    stream: Stream,
    from: u64,
    len: usize,
) -> Vec<T> {
    let mut values = vec![T::zeroed(); len];
    let to = values.as_mut_ptr().cast::<c_void>();
    // SAFETY: as many values are there.
    unsafe { driver.download(stream, to, from, size_of::<T>() * len) }.unwrap();
    driver.synchronize(stream).unwrap();
    values
}

fn free(driver: &NativeDriver, addresses: &[u64]) {
    for address in addresses {
        // SAFETY: it was allocated, and is not used any more.
        unsafe { driver.free(*address, 1) }.unwrap();
    }
}

#[test]
fn the_device_is_what_the_driver_says_it_is() {
    let driver = driver();
    let properties = driver.properties();
    assert_eq!((properties.name.as_str(), properties.capability), ("Stub H100", (9, 0)));
    assert_eq!((properties.multiprocessors, properties.memory), (132, 80 << 30));
    assert_eq!(properties.shared_memory, 232_448);
    assert_eq!(format!("{driver:?}"), "GPU 0 (Stub H100)");

    assert!(cuda_available());
    let probe = probe().unwrap();
    assert_eq!(probe.devices.len(), 1);
    assert_eq!(probe.libraries[0].path, folders().0.join("libcuda.so.1"));
    assert_eq!(probe.missing.len(), 2, "cuDNN and NCCL are not there, and not needed");

    let Err(DriverError::NoDevice(error)) = NativeDriver::new(3) else { panic!("there is one") };
    assert!(error.starts_with("there is no GPU 3: the driver shows 1"), "{error}");
}

#[test]
fn memory_is_copied_and_cleared_in_streams() {
    let driver = driver();
    let [stream, urgent] = [false, true].map(|urgent| driver.new_stream(urgent).unwrap());
    let values = [1u32, 2, 3, 4];
    let from = upload(&driver, stream, &values);
    let to = driver.alloc(16).unwrap();
    assert!(from.is_multiple_of(256) && to.is_multiple_of(256));
    // SAFETY: there are 16 bytes at both.
    unsafe {
        driver.copy(urgent, to, from, 16).unwrap();
        driver.zero(urgent, to + 4, 8).unwrap();
    }
    assert_eq!(download::<u32>(&driver, stream, to, 4), [1, 0, 0, 4]);

    let pinned = driver.alloc_pinned(16).unwrap();
    // SAFETY: 16 bytes of host memory, which are given back once.
    unsafe {
        driver.download(stream, pinned.cast(), from, 16).unwrap();
        assert_eq!(std::slice::from_raw_parts(pinned, 16), bytes(&values));
        driver.free_pinned(pinned, 16).unwrap();
    }
    assert_eq!(driver.alloc(2 << 40), Err(DriverError::OutOfMemory { bytes: 2 << 40 }));
    free(&driver, &[from, to]);
    for stream in [stream, urgent] {
        driver.free_stream(stream).unwrap();
    }
}

#[test]
fn events_happen_and_are_measured_where_that_was_asked_for() {
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let [from, to, untimed] = [true, true, false].map(|timed| driver.new_event(timed).unwrap());
    assert_eq!(driver.is_done(from), Ok(false));
    for event in [from, to, untimed] {
        driver.record(event, stream).unwrap();
    }
    driver.wait(stream, from).unwrap();
    assert_eq!(driver.is_done(from), Ok(true));
    assert!(driver.elapsed_ms(from, to).unwrap() > 0.0);
    let error = driver.elapsed_ms(from, untimed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuEventElapsedTime_v2 failed: CUDA_ERROR_INVALID_VALUE, invalid argument"
    );
    for event in [from, to, untimed] {
        driver.free_event(event).unwrap();
    }
    driver.free_stream(stream).unwrap();
}

/// Launches the stub's kernel, which adds `number` and all threads to what is at `address`.
fn launch(
    driver: &NativeDriver,
    stream: Stream,
    function: Function,
    address: u64,
    number: u32,
    shared: u32,
) -> Result<(), DriverError> {
    let grid = Grid { blocks: [2, 3, 1], threads: 32, shared };
    // SAFETY: these are the parameters of the stub's kernel, and the number is there.
    unsafe { driver.launch(stream, function, grid, &[bytes(&[address]), bytes(&[number])]) }
}

#[test]
fn kernels_are_compiled_kept_and_launched() {
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let kernels = source("kernels", "KERNEL(add) KERNEL(other)");
    let module = driver.load(&kernels).unwrap();
    assert_eq!(driver.load(&kernels), Ok(module));
    let files = std::fs::read_dir(&folders().1).unwrap();
    let kept = files.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("kernels-sm_90a-")
    });
    assert_eq!(kept.count(), 1);
    // Another driver finds what the first has kept.
    NativeDriver::new(0).unwrap().load(&kernels).unwrap();

    let function = driver.function(module, "add").unwrap();
    let address = upload(&driver, stream, &[7u32]);
    launch(&driver, stream, function, address, 1000, 0).unwrap();
    // All that the device has is allowed, but for what the kernel has fixed.
    launch(&driver, stream, function, address, 1000, 232_448 - 1024).unwrap();
    let error = launch(&driver, stream, function, address, 1, 232_448).unwrap_err().to_string();
    assert!(error.starts_with("cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE"), "{error}");
    assert_eq!(download::<u32>(&driver, stream, address, 1), [7 + 2 * (1000 + 6 * 32)]);

    let error = driver.function(module, "none").unwrap_err().to_string();
    assert_eq!(error, "cuModuleGetFunction failed: the source has no kernel `none`");
    let broken = source("broken", "ERROR");
    assert_eq!(
        driver.load(&broken),
        Err(DriverError::Compile {
            source_name: "broken".to_string(),
            architecture: "sm_90a".to_string(),
            log: "stub.cu(1): error: the word is in it".to_string(),
        })
    );
    free(&driver, &[address]);
    driver.free_stream(stream).unwrap();
}

#[test]
fn threads_share_a_driver() {
    let driver = driver();
    let sources: Vec<Source> = (0..16)
        .map(|i| Source { name: format!("shared{i}").into(), text: "KERNEL(add)".into() })
        .collect();
    driver.preload(&sources.iter().collect::<Vec<_>>()).unwrap();
    std::thread::scope(|scope| {
        for source in &sources {
            let driver = &driver;
            scope.spawn(move || {
                // The device is the thread's from its first call on, whichever that is.
                let stream = driver.new_stream(false).unwrap();
                let function = driver.function(driver.load(source).unwrap(), "add").unwrap();
                let address = upload(driver, stream, &[0u32]);
                launch(driver, stream, function, address, 1, 0).unwrap();
                assert_eq!(download::<u32>(driver, stream, address, 1), [1 + 6 * 32]);
                free(driver, &[address]);
                driver.free_stream(stream).unwrap();
            });
        }
    });
}

#[test]
fn work_is_recorded_and_submitted_again() {
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let address = driver.alloc(16).unwrap();
    driver.begin_capture(stream).unwrap();
    // SAFETY: there are 16 bytes.
    unsafe { driver.zero(stream, address, 16) }.unwrap();
    let graph = driver.end_capture(stream).unwrap();
    // SAFETY: as above.
    unsafe { driver.launch_graph(stream, graph) }.unwrap();
    driver.free_graph(graph).unwrap();
    assert!(driver.end_capture(stream).unwrap_err().to_string().starts_with("cuStreamEndCapture "));
    free(&driver, &[address]);
    driver.free_stream(stream).unwrap();
}

/// Held by tests of products, since the stub counts those of the whole process.
static PRODUCTS: Mutex<()> = Mutex::new(());

/// A number of the stub of the library of products.
fn stub_number(name: &str) -> i32 {
    // SAFETY: only tests of products read and write it, one after another.
    unsafe { *stub_place(name) }
}

fn set_stub_number(name: &str, value: i32) {
    // SAFETY: as above.
    unsafe { *stub_place(name) = value };
}

fn stub_place(name: &str) -> *mut i32 {
    let path = folders().0.join("libcublasLt.so.13");
    // SAFETY: the stub is loaded already, for good, and its numbers are `int`s.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        *library.get::<*mut i32>(name).unwrap()
    }
}

#[test]
fn products_are_those_of_row_major_matrices() {
    let _alone = PRODUCTS.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let (m, n, k) = (3, 5, 4);
    // Small integers, which bf16 has exactly.
    let a: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let half = |values: &[f32]| -> Vec<half::bf16> {
        values.iter().map(|value| half::bf16::from_f32(*value)).collect()
    };
    let f32s = [upload(&driver, stream, &a), upload(&driver, stream, &b)];
    let bf16s = [upload(&driver, stream, &half(&a)), upload(&driver, stream, &half(&b))];
    for form in 0..8 {
        let [trans_a, trans_b, accumulate] = [1, 2, 4].map(|bit| form & bit != 0);
        let gemm = Gemm { m, n, k, trans_a, trans_b, accumulate };
        for (factors, [from_a, from_b]) in [(DType::F32, f32s), (DType::Bf16, bf16s)] {
            let c = upload(&driver, stream, &vec![100.0f32; m * n]);
            let (result, ending) = (DType::F32, Ending::Plain);
            let shape = MatMul { gemm, factors, result, ending };
            let operands = MatMulOperands::plain(from_a, from_b, c);
            // SAFETY: the matrices are of these sizes.
            unsafe { driver.matmul(stream, &shape, &operands) }.unwrap();
            let expected: Vec<f32> = (0..m * n)
                .map(|at| {
                    let (row, col) = (at / n, at % n);
                    let product = |i: usize| {
                        a[if trans_a { i * m + row } else { row * k + i }]
                            * b[if trans_b { col * k + i } else { i * n + col }]
                    };
                    (0..k).map(product).sum::<f32>() + if accumulate { 100.0 } else { 0.0 }
                })
                .collect();
            assert_eq!(download::<f32>(&driver, stream, c, m * n), expected, "{gemm:?} {factors}");
            free(&driver, &[c]);
        }
    }
    free(&driver, &f32s);
    free(&driver, &bf16s);
    driver.free_stream(stream).unwrap();
}

#[test]
fn endings_are_those_of_row_major_matrices() {
    let _alone = PRODUCTS.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let (m, n, k) = (3, 8, 5);
    let a: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let bias: Vec<f32> = (0..n).map(|i| 1000.0 * (i + 1) as f32).collect();
    let [at_a, at_b, at_bias] = [&a, &b, &bias].map(|values| upload(&driver, stream, values));
    let [c, inside, sums] = [m * n, m * n, n].map(|len| upload(&driver, stream, &vec![0f32; len]));
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let with = |ending| MatMul { gemm, factors: DType::F32, result: DType::F32, ending };
    let run = |ending, vector, inside| {
        assert_eq!(driver.has_matmul(&with(ending)), Ok(true));
        let operands = MatMulOperands { a: at_a, b: at_b, c, vector, inside };
        // SAFETY: the operands are of these sizes.
        unsafe { driver.matmul(stream, &with(ending), &operands) }.unwrap();
        download::<f32>(&driver, stream, c, m * n)
    };
    let product = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f32>();
    let plain: Vec<f32> = (0..m * n).map(product).collect();
    let biased: Vec<f32> = (0..m * n).map(|at| plain[at] + bias[at % n]).collect();
    // The library doubles instead of GELU.
    let doubled: Vec<f32> = biased.iter().map(|x| 2.0 * x).collect();
    assert_eq!(run(Ending::Plain, 0, 0), plain);
    assert_eq!(run(Ending::Bias, at_bias, 0), biased);
    assert_eq!(run(Ending::BiasGelu { keeps: false }, at_bias, 0), doubled);
    assert_eq!(run(Ending::BiasGelu { keeps: true }, at_bias, inside), doubled);
    assert_eq!(download::<f32>(&driver, stream, inside, m * n), biased);
    assert_eq!(run(Ending::Sums, sums, 0), plain);
    let of_columns: Vec<f32> = (0..n).map(|col| (0..k).map(|i| b[i * n + col]).sum()).collect();
    assert_eq!(download::<f32>(&driver, stream, sums, n), of_columns);
    // Another bias of the same product.
    let other = upload(&driver, stream, &vec![0f32; n]);
    assert_eq!(run(Ending::Bias, other, 0), plain);

    let narrow = MatMul { gemm: Gemm { n: 6, ..gemm }, ..with(Ending::Bias) };
    assert_eq!(driver.has_matmul(&narrow), Ok(false));
    let sums_in_bf16 = MatMul { result: DType::Bf16, factors: DType::Bf16, ..with(Ending::Sums) };
    assert_eq!(driver.has_matmul(&sums_in_bf16), Ok(false));
    assert_eq!(
        driver.has_matmul(&MatMul { gemm: Gemm { k: 0, ..gemm }, ..with(Ending::Bias) }),
        Ok(false)
    );
    free(&driver, &[at_a, at_b, at_bias, c, inside, sums, other]);
    driver.free_stream(stream).unwrap();
}

/// A refusal is remembered, whenever the library tells it, and is none of the plain product.
#[test]
fn refused_endings_are_remembered() {
    let _alone = PRODUCTS.lock();
    let (m, n, k) = (4, 8, 5);
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let with = |ending| MatMul { gemm, factors: DType::F32, result: DType::F32, ending };
    for when in [1, 2] {
        let driver = driver();
        let stream = driver.new_stream(false).unwrap();
        let ones = vec![1f32; 64];
        let [a, b, c, vector] = [(); 4].map(|()| upload(&driver, stream, &ones));
        let operands = MatMulOperands { a, b, c, vector, inside: 0 };
        // SAFETY: the operands are at least of these sizes.
        let run = |ending| unsafe { driver.matmul(stream, &with(ending), &operands) };
        set_stub_number("stub_refuses", when);
        for ending in [Ending::Bias, Ending::Sums] {
            assert_eq!(driver.has_matmul(&with(ending)), Ok(when == 2), "{ending:?}");
            let refused = run(ending);
            assert!(matches!(refused, Err(DriverError::Refused { .. })), "{when} {refused:?}");
            // Also when the library would have them now.
            set_stub_number("stub_refuses", 0);
            assert_eq!(driver.has_matmul(&with(ending)), Ok(false), "{ending:?}");
            set_stub_number("stub_refuses", when);
        }
        run(Ending::Plain).unwrap();
        assert_eq!(download::<f32>(&driver, stream, c, m * n), vec![k as f32; m * n]);
        set_stub_number("stub_refuses", 0);
        free(&driver, &[a, b, c, vector]);
        driver.free_stream(stream).unwrap();
    }
}

#[test]
fn products_without_terms_are_zero_and_others_are_refused() {
    let _alone = PRODUCTS.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let c = upload(&driver, stream, &[5.0f32; 4]);
    let product = |k, accumulate, factors, result| {
        let gemm = Gemm { m: 2, n: 2, k, trans_a: false, trans_b: false, accumulate };
        let shape = MatMul { gemm, factors, result, ending: Ending::Plain };
        // SAFETY: without terms there are no factors to read, and a refused product reads nothing.
        unsafe { driver.matmul(stream, &shape, &MatMulOperands::plain(c, c, c)) }
    };
    product(0, true, DType::F32, DType::F32).unwrap();
    assert_eq!(download::<f32>(&driver, stream, c, 4), [5.0; 4]);
    product(0, false, DType::F32, DType::F32).unwrap();
    assert_eq!(download::<f32>(&driver, stream, c, 4), [0.0; 4]);
    let error = product(1, false, DType::F32, DType::Bf16).unwrap_err().to_string();
    assert_eq!(error, "cublasLtMatmul failed: there is no product of f32 with a result of bf16");
    free(&driver, &[c]);
    driver.free_stream(stream).unwrap();
}

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
    assert_eq!(large.kept(), [PathBuf::new(); 0], "nothing was found out");
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

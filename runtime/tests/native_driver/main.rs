//! The native driver over stubs of the vendor's libraries: the calls that it makes, their order, and its handling of
//! results. The stubs are in `stubs` and check their arguments.
#![cfg(feature = "cuda")]

mod autotune;
mod matmul;
mod stubs;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use matmul::{MATMUL_LOCK, set_stub_number, stub_number};
use meshwright::backend::{DType, Gemm};
use meshwright::train::{Gpus, Machine};
use meshwright_cuda::native::{NativeDriver, compile_into_cache, cuda_available, probe};
use meshwright_cuda::{
    Driver, DriverCalls, DriverError, Grid, KernelFunction, KernelSource, MatMul, MatMulEpilogue,
    MatMulOperands, SOURCES, Stream,
};

/// Folders of the libraries and of the cache, set in the environment on first use.
fn folders() -> &'static (PathBuf, PathBuf) {
    static FOLDERS: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let folders = (dir.join("libraries"), dir.join("cache"));
        std::fs::create_dir(&folders.0).unwrap();
        stubs::make_all(&folders.0, &[]);
        // SAFETY: every test begins here, so no other thread of this process reads the environment yet.
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

fn source(name: &'static str, text: &'static str) -> KernelSource {
    KernelSource { name: name.into(), text: text.into() }
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Copies values to new device memory.
fn upload<T: bytemuck::NoUninit>(driver: &NativeDriver, stream: Stream, values: &[T]) -> u64 {
    let address = driver.alloc(size_of_val(values)).unwrap();
    let from = values.as_ptr().cast::<c_void>();
    // SAFETY: the memory is large enough, and the stub copies immediately.
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
    // SAFETY: there are `len` values.
    unsafe { driver.download(stream, to, from, size_of::<T>() * len) }.unwrap();
    driver.synchronize(stream).unwrap();
    values
}

fn free(driver: &NativeDriver, addresses: &[u64]) {
    for address in addresses {
        // SAFETY: allocated, and not used any more.
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
    assert!(error.starts_with("there is no GPU 3: the driver reports 1"), "{error}");
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
    // SAFETY: 16 bytes of host memory, freed once.
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
fn events_complete_and_timed_ones_are_measured() {
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

/// Launches the stub's kernel, which adds `number` and the number of threads to the value at `address`.
fn launch(
    driver: &NativeDriver,
    stream: Stream,
    function: KernelFunction,
    address: u64,
    number: u32,
    shared: u32,
) -> Result<(), DriverError> {
    let grid = Grid { blocks: [2, 3, 1], threads: 32, shared };
    // SAFETY: the parameters match the stub's kernel, and the value is live.
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
    // Another driver finds the cached code.
    NativeDriver::new(0).unwrap().load(&kernels).unwrap();

    let function = driver.function(module, "add").unwrap();
    let address = upload(&driver, stream, &[7u32]);
    launch(&driver, stream, function, address, 1000, 0).unwrap();
    // The maximum of the device is allowed, minus the kernel's static shared memory.
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

/// A driver finds kernels that were compiled without a device in the cache.
#[test]
fn kernels_are_compiled_without_a_device() {
    let cache = &folders().1;
    let kept = || -> Vec<String> {
        let files = std::fs::read_dir(cache).unwrap();
        let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("early-sm_90a-")).collect()
    };
    let kernels = source("early", "KERNEL(add)");
    compile_into_cache(&[&kernels], "sm_90a").unwrap();
    let before = kept();
    assert_eq!(before.len(), 1);
    driver().load(&kernels).unwrap();
    assert_eq!(kept(), before);
    let broken = compile_into_cache(&[&source("early_broken", "ERROR")], "sm_90a");
    assert!(matches!(broken, Err(DriverError::Compile { .. })), "{broken:?}");
}

#[test]
fn threads_share_a_driver() {
    let driver = driver();
    let sources: Vec<KernelSource> = (0..16)
        .map(|i| KernelSource { name: format!("shared{i}").into(), text: "KERNEL(add)".into() })
        .collect();
    driver.preload(&sources.iter().collect::<Vec<_>>()).unwrap();
    std::thread::scope(|scope| {
        for source in &sources {
            let driver = &driver;
            scope.spawn(move || {
                // The context is current from a thread's first call on, whichever call it is.
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
    let event = driver.new_event(true).unwrap();
    driver.record_in_graph(event, stream).unwrap();
    let graph = driver.end_capture(stream).unwrap();
    assert!(!driver.is_done(event).unwrap(), "recorded by the capture and not by a launch");
    // SAFETY: as above.
    unsafe { driver.launch_graph(stream, graph) }.unwrap();
    assert!(driver.is_done(event).unwrap());
    driver.free_graph(graph).unwrap();
    let error = driver.record_in_graph(event, stream).unwrap_err().to_string();
    assert!(error.starts_with("cuEventRecordWithFlags "), "outside of a capture: {error}");
    driver.free_event(event).unwrap();
    assert!(driver.end_capture(stream).unwrap_err().to_string().starts_with("cuStreamEndCapture "));
    free(&driver, &[address]);
    driver.free_stream(stream).unwrap();
}

/// Makes the driver's stub return this status to the calling thread.
fn set_stub_status(status: i32) {
    let path = folders().0.join("libcuda.so.1");
    // SAFETY: the stub is loaded permanently and has this function.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        library.get::<unsafe extern "C" fn(i32)>("stub_set_status").unwrap()(status);
    }
}

/// A status that is newer than the bindings is an error with its number.
#[test]
fn unknown_statuses_are_errors() {
    let _alone = MATMUL_LOCK.lock();
    let driver = driver();
    let stream = driver.new_stream(false).unwrap();
    let c = upload(&driver, stream, &[1f32; 16]);
    let gemm = Gemm { m: 2, n: 8, k: 2, trans_a: false, trans_b: false, accumulate: false };
    let (inputs, result) = (DType::F32, DType::F32);
    for epilogue in [MatMulEpilogue::Plain, MatMulEpilogue::Bias] {
        let shape = MatMul { gemm, inputs, result, epilogue, is_grouped: false, batch: None };
        set_stub_number("stub_refuses", 4711);
        let operands = MatMulOperands { bias: c, ..MatMulOperands::plain(c, c, c) };
        // SAFETY: nothing is computed.
        let error = unsafe { driver.matmul(stream, &shape, &operands) }.unwrap_err();
        set_stub_number("stub_refuses", 0);
        assert_eq!(error.to_string(), "cublasLtMatmul failed: unknown (status 4711)");
    }
    set_stub_status(4711);
    let error = driver.synchronize(stream).unwrap_err().to_string();
    set_stub_status(0);
    assert_eq!(error, "cuStreamSynchronize failed: status 4711");
    free(&driver, &[c]);
    driver.free_stream(stream).unwrap();
}

/// Ranks that share a device share its driver, with the preloaded kernels.
#[test]
fn ranks_share_a_driver_with_its_kernels() {
    let _alone = MATMUL_LOCK.lock();
    folders();
    let before = stub_number("stub_handles");
    let gpus = Gpus::of_host(&"dp=3".parse().unwrap(), false).unwrap();
    let backends: Vec<_> = (0..3).map(|rank| gpus.backend(rank).unwrap()).collect();
    assert_eq!(stub_number("stub_handles") - before, 1);
    assert!(gpus.backend(3).is_err());
    let files = std::fs::read_dir(&folders().1).unwrap();
    let names: Vec<_> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    for source in SOURCES {
        let begins = format!("{}-sm_90a-", source.name);
        assert!(names.iter().any(|name| name.starts_with(&begins)), "{begins} in {names:?}");
    }
    drop(backends);
}

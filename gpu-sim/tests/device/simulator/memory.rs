//! Accesses to invalid or uninitialized memory.

use std::ffi::c_void;

use meshwright_cuda::{DeviceProperties, DriverCalls, DriverError, Grid};
use meshwright_gpu_sim::{SimDevice, h100};

use super::rig::{Rig, args, grid, message};

const STORE: &str = "KERNEL(test)(float* x, int64_t at) { x[at] = 1.0f; }";
const LOAD: &str = "KERNEL(test)(float* x, int64_t at) { x[0] = x[at]; }";

fn run_at(text: &str, at: i64) -> Result<(), DriverError> {
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 100]);
    rig.run(text, grid(1, 1), args![x, at])
}

#[test]
fn writes_beside_an_allocation_are_found() {
    for (at, place) in [
        (100, "0 bytes beyond the end of an allocation of 400"),
        (110, "40 bytes beyond the end of an allocation of 400"),
        (-1, "bytes before an allocation of 400"),
    ] {
        let message = message(run_at(STORE, at));
        assert!(message.contains("kernel `test`") && message.contains(place), "{message}");
    }
    run_at(STORE, 99).expect("the last element");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn memory_that_is_not_there_is_an_error() {
    for (text, at) in [(STORE, 128), (LOAD, 128), (LOAD, 1 << 40), (STORE, -1500)] {
        let message = message(run_at(text, at));
        let told = message.contains("kernel `test`, block (0, 0, 0), thread 0: used address");
        assert!(told, "{message}");
    }
    let message = message(run_at(STORE, 128));
    assert!(message.contains("112 bytes beyond the end of an allocation of 400"), "{message}");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn freed_memory_is_refused() {
    let rig = Rig::new(1);
    let (x, y) = (rig.put(&[0f32; 100]), rig.put(&[0f32; 100]));
    // SAFETY: nothing uses the memory yet.
    unsafe { rig.driver.free(x, 400) }.expect("memory that was allocated");
    let text = "KERNEL(test)(float* x, const float* y) { x[0] = y[0]; }";
    let message = message(rig.run(text, grid(1, 1), args![y, x]));
    assert!(message.contains("in no live allocation"), "{message}");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_full_stack_is_an_error() {
    let text = "__device__ __noinline__ float deep(volatile float* x, int n) {\n\
                    volatile float own[64];\n\
                    own[n % 64] = x[0];\n\
                    return n == 0 ? own[0] : deep(own, n - 1) + own[n % 64];\n\
                }\n\
                KERNEL(test)(float* x, int n) { x[0] = deep(x, n); }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 100]);
    let message = message(rig.run(text, grid(1, 1), args![x, 100_000i32]));
    assert!(message.contains("used address"), "{message}");
}

#[test]
fn addresses_must_be_aligned() {
    let text = "KERNEL(test)(float* x, uint64_t at) {\n*(float4*)(x + at) = float4{1, 2, 3, 4};\n}";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 100]);
    rig.run(text, grid(1, 1), args![x, 4u64]).expect("a run");
    let message = message(rig.run(text, grid(1, 1), args![x, 5u64]));
    assert!(
        message.contains("test.cu:2") && message.contains("not aligned to 16 bytes"),
        "{message}"
    );
}

#[test]
fn indices_must_lie_in_arrays() {
    let text = "KERNEL(test)(float* x) {\n__shared__ float part[32];\npart[threadIdx.x] = 1.0f;\n}";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    rig.run(text, grid(1, 32), args![x]).expect("a run");
    let message = message(rig.run(text, grid(1, 64), args![x]));
    assert!(message.contains("test.cu:3") && message.contains("is not in the array"), "{message}");
}

#[test]
fn dynamic_shared_memory_has_the_requested_size() {
    let text = "KERNEL(test)(float* x) { DYNAMIC_SHARED(float, part); part[threadIdx.x] = 1.0f; }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let grid = |threads| Grid { shared: 33 * 4, ..grid(1, threads) };
    rig.run(text, grid(33), args![x]).expect("a run");
    let message = message(rig.run(text, grid(34), args![x]));
    assert!(message.contains("wrote 0 bytes beyond the end of its 132 bytes"), "{message}");
}

/// Every block writes shared memory; a later block does not see the values.
#[test]
fn shared_memory_begins_as_nan_in_every_block() {
    let text = "KERNEL(test)(float* x) {\n\
                    __shared__ float fixed[2];\n\
                    DYNAMIC_SHARED(float, asked);\n\
                    x[2 * blockIdx.x] = fixed[1];\n\
                    x[2 * blockIdx.x + 1] = asked[1];\n\
                    fixed[1] = asked[1] = 1.0f;\n\
                }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 8]);
    rig.run(text, Grid { shared: 64, ..grid(4, 1) }, args![x]).expect("a run");
    assert!(rig.get::<f32>(x, 8).expect("values").iter().all(|x| x.is_nan()));
}

#[test]
fn fresh_memory_is_nan() {
    let rig = Rig::new(1);
    let x = rig.driver.alloc(1000).expect("memory");
    assert!(x.is_multiple_of(256));
    assert!(rig.get::<f32>(x, 250).expect("values").iter().all(|x| x.is_nan()));
}

#[test]
fn memory_ends_at_its_limit() {
    let device = SimDevice::with(1, DeviceProperties { memory: 1000, ..h100() });
    let driver = device.driver();
    let first = driver.alloc(600).expect("memory");
    assert_eq!(driver.alloc(401), Err(DriverError::OutOfMemory { bytes: 401 }));
    assert_eq!(device.live(), (600, 1));
    // SAFETY: nothing uses the memory.
    unsafe {
        assert!(driver.free(first, 500).is_err());
        driver.free(first, 600).expect("memory that was allocated");
        assert!(driver.free(first, 600).is_err());
    }
    driver.alloc(1000).expect("all of it");
}

#[test]
fn copies_stay_in_their_allocations() {
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 100]);
    let message = message(rig.get::<f32>(x, 101).map(drop));
    assert!(message.contains("download failed: 404 bytes at"), "{message}");
}

/// A driver may refuse empty transfers: the address of an empty block belongs to no allocation.
#[test]
fn empty_transfers_are_refused() {
    let Rig { driver, stream } = Rig::new(1);
    let x = driver.alloc(8).expect("memory");
    let mut host = [0u8; 8];
    let host = host.as_mut_ptr().cast::<c_void>();
    // SAFETY: nothing is read or written.
    let results = unsafe {
        [
            driver.upload(stream, x, host, 0),
            driver.download(stream, host, x, 0),
            driver.copy(stream, x, x, 0),
            driver.zero(stream, x, 0),
        ]
    };
    for result in results {
        let message = message(result);
        assert!(message.contains("of 0 bytes"), "{message}");
    }
}

//! Compilation of kernel sources, and the emulated language.

use meshwright_cuda::{DriverCalls, DriverError, Grid};

use super::rig::{Rig, args, grid, message, source};

#[test]
fn compile_errors_name_the_line() {
    let rig = Rig::new(1);
    let error = rig.driver.load(&source("KERNEL(test)(float* x) {\n    x[0] = y;\n}"));
    let Err(DriverError::Compile { source_name, log, .. }) = error else {
        panic!("{error:?} is not an error of the compiler")
    };
    assert_eq!(source_name, "test");
    assert!(log.contains("test.cu:2"), "{log}");
}

#[test]
fn kernels_are_found_behind_macros() {
    let text = "#define ADD(name, T) KERNEL(add_##name)(T* x, T by) { x[threadIdx.x] += by; }\n\
                ADD(f32, float)\nADD(i32, int)";
    let rig = Rig::new(1);
    let module = rig.driver.load(&source(text)).expect("a module");
    assert_eq!(rig.driver.load(&source(text)), Ok(module));
    let function = rig.driver.function(module, "add_i32").expect("a kernel");
    let x = rig.put(&[1i32, 2, 3]);
    // SAFETY: there is an element for every thread.
    unsafe { rig.driver.launch(rig.stream, function, grid(1, 3), args![x, 10i32]) }
        .expect("a launch");
    assert_eq!(rig.get::<i32>(x, 3), Ok(vec![11, 12, 13]));
    let missing = message(rig.driver.function(module, "add_u8").map(drop));
    assert!(
        missing.ends_with("`test` has no kernel `add_u8`; it has add_f32, add_i32"),
        "{missing}"
    );
}

#[test]
fn parameters_must_have_the_sizes_of_the_kernel() {
    let text = "struct Pair { int a; float b; };\n\
                KERNEL(test)(float* x, Pair pair, uint8_t small) { x[0] = pair.a + pair.b + small; }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let pair = [7u32, 0.5f32.to_bits()];
    rig.run(text, grid(1, 1), args![x, pair, 3u8]).expect("a run");
    assert_eq!(rig.get::<f32>(x, 1), Ok(vec![10.5]));
    let message = message(rig.run(text, grid(1, 1), args![x, pair, 3u32]));
    assert!(message.contains("takes parameters of [8, 8, 1] bytes, not of [8, 8, 4]"), "{message}");
}

#[test]
fn launches_must_fit_the_device() {
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let text = "KERNEL(test)(float* x) {}";
    for (wrong, told) in [
        (grid(1, 1025), "cannot have 1025 threads"),
        (grid(0, 32), "cannot have (0, 1, 1) blocks"),
        (
            Grid { shared: 228 * 1024, ..grid(1, 32) },
            "requests 233472 bytes of shared memory of 232448",
        ),
    ] {
        let message = message(rig.run(text, wrong, args![x]));
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn every_block_and_thread_runs_once() {
    let text = "KERNEL(test)(unsigned* x) {\n\
                    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n\
                    atomicAdd(&x[block * blockDim.x + threadIdx.x], block + 1);\n\
                }";
    for seed in 0..10 {
        let rig = Rig::new(seed);
        let x = rig.put(&[0u32; 7 * 3 * 2 * 45]);
        let grid = Grid { blocks: [7, 3, 2], threads: 45, shared: 0 };
        rig.run(text, grid, args![x]).expect("a run");
        let expected: Vec<u32> = (0..7 * 3 * 2 * 45).map(|i| i / 45 + 1).collect();
        assert_eq!(rig.get(x, expected.len()), Ok(expected));
    }
}

#[test]
fn functions_of_the_language_are_there() {
    let text = "KERNEL(test)(float* x, int* n) {\n\
                    x[0] = __expf(1.0f) + __logf(1.0f) + rsqrtf(4.0f) + __fdividef(1.0f, 2.0f);\n\
                    x[1] = fmaf(2.0f, 3.0f, 4.0f) + fmaxf(1.0f, NAN) + min(1.0f, 2.0f);\n\
                    x[2] = __uint_as_float(__float_as_uint(2.5f)) + __ldg(x + 3) + INFINITY;\n\
                    __stcs(x + 4, __ldcs(x + 3) + erff(0.0f) + tanhf(0.0f));\n\
                    n[0] = __popc(255) + __clz(1) + __ffs(8) + max(1, 2u);\n\
                    n[1] = (int)__umulhi(1u << 31, 6u) + atomicMax(n + 2, 5) + atomicCAS(n + 2, 5, 9);\n\
                    float4 v = make_float4(1, 2, 3, 4);\n\
                    *(float4*)(x + 8) = v;\n\
                }";
    let rig = Rig::new(1);
    let (x, n) = (rig.put(&[1f32; 12]), rig.put(&[0i32, 0, 3]));
    rig.run(text, grid(1, 1), args![x, n]).expect("a run");
    let x: Vec<f32> = rig.get(x, 12).expect("values");
    assert!((x[0] - (1f32.exp() + 1.0)).abs() < 1e-6);
    assert_eq!(x[1..5], [12.0, f32::INFINITY, 1.0, 1.0]);
    assert_eq!(x[8..], [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(rig.get::<i32>(n, 3), Ok(vec![8 + 31 + 4 + 2, 3 + 3 + 5, 9]));
}

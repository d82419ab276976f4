//! Barriers and warp operations.

use std::collections::BTreeSet;

use meshwright_cuda::DriverError;

use super::rig::{Rig, args, grid, message};

/// Sums of blocks, by a tree in shared memory.
const SUM: &str = r#"
KERNEL(test)(const float* x, float* sums) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
"#;

fn sums(seed: u64, text: &str) -> Result<Vec<f32>, DriverError> {
    let rig = Rig::new(seed);
    let x: Vec<f32> = (0..3 * 256).map(|i| i as f32).collect();
    let (x, sums) = (rig.put(&x), rig.put(&[0f32; 3]));
    rig.run(text, grid(3, 256), args![x, sums])?;
    rig.get(sums, 3)
}

#[test]
fn a_tree_of_sums_is_right_in_any_order() {
    for seed in 0..20 {
        assert_eq!(sums(seed, SUM), Ok(vec![32640.0, 98176.0, 163712.0]));
    }
}

#[test]
fn a_missing_barrier_is_found_in_any_order() {
    let first = SUM.replacen("__syncthreads();", "", 1);
    let second = SUM.replace("half];\n        __syncthreads();", "half];");
    for text in [first, second] {
        assert_ne!(text, SUM);
        for seed in 0..10 {
            let told = message(sums(seed, &text).map(drop));
            assert!(told.contains("a race in shared memory"), "seed {seed}: {told}");
        }
    }
}

/// Atomic operations are not checked for races, so the thread order shows in the result.
#[test]
fn a_result_that_depends_on_the_order_is_seen() {
    let text = "KERNEL(test)(int* x) {\n\
                    __shared__ int last;\n\
                    atomicExch(&last, (int)threadIdx.x);\n\
                    __syncthreads();\n\
                    x[0] = last;\n\
                }";
    let last = |seed| {
        let rig = Rig::new(seed);
        let x = rig.put(&[0i32]);
        rig.run(text, grid(1, 64), args![x]).expect("a run");
        rig.get::<i32>(x, 1).expect("a value")[0]
    };
    let seen: BTreeSet<i32> = (0..10).map(last).collect();
    assert!(seen.len() > 5, "{seen:?}");
}

/// Lanes exchange values in shared memory, and overwrite them.
#[test]
fn lanes_need_a_barrier_of_their_warp() {
    let text = "KERNEL(test)(float* x) {\n\
                    __shared__ float part[64];\n\
                    int t = threadIdx.x;\n\
                    part[t] = t;\n\
                    FIRST\n\
                    float other = part[t ^ 1];\n\
                    SECOND\n\
                    part[t] = 2 * other;\n\
                    x[t] = part[t];\n\
                }";
    let run = |seed, first: &str, second: &str| {
        let rig = Rig::new(seed);
        let x = rig.put(&[0f32; 64]);
        rig.run(&text.replace("FIRST", first).replace("SECOND", second), grid(1, 64), args![x])?;
        rig.get::<f32>(x, 64)
    };
    let expected: Vec<f32> = (0..64).map(|t| 2.0 * (t ^ 1) as f32).collect();
    for seed in 0..5 {
        assert_eq!(run(seed, "__syncwarp();", "__syncwarp();"), Ok(expected.clone()));
        for (first, second) in [
            ("", "__syncwarp();"),
            ("__syncwarp();", ""),
            // A shuffle does not order memory accesses.
            ("__shfl_sync(~0u, 1, 0);", "__syncwarp();"),
        ] {
            let told = message(run(seed, first, second).map(drop));
            assert!(told.contains("a race in shared memory"), "{told}");
        }
    }
}

#[test]
fn threads_at_different_barriers_are_an_error() {
    let text = "KERNEL(test)(float* x) {\n\
                    if (threadIdx.x < 32) __syncthreads();\n\
                    else { x[0] = 1.0f;\n __syncthreads(); }\n\
                }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let message = message(rig.run(text, grid(2, 64), args![x]));
    assert!(
        message.contains("kernel `test`, block (") && message.contains("divergent barrier"),
        "{message}"
    );
    assert!(message.contains("line 2") && message.contains("line 4"), "{message}");
}

#[test]
fn a_barrier_that_some_never_reach_is_an_error() {
    let text = "KERNEL(test)(float* x) {\n\
                    if (threadIdx.x % 32 < 16) __syncwarp();\n\
                    else { x[0] = 1.0f;\n __syncthreads(); }\n\
                }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let message = message(rig.run(text, grid(1, 64), args![x]));
    assert!(message.contains("deadlock") && message.contains("__syncwarp at line 2"), "{message}");
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    let text = "KERNEL(test)(float* x) {\n\
                    if (threadIdx.x >= 40) return;\n\
                    __syncthreads();\n\
                    float sum = __shfl_xor_sync(~0u, 1.0f, 1) + 1.0f;\n\
                    x[threadIdx.x] = sum;\n\
                }";
    for seed in 0..10 {
        let rig = Rig::new(seed);
        let x = rig.put(&[0f32; 40]);
        rig.run(text, grid(1, 64), args![x]).expect("a run");
        assert_eq!(rig.get::<f32>(x, 40).expect("values"), [2.0; 40]);
    }
}

#[test]
fn lanes_that_part_before_a_shuffle_are_an_error() {
    let text = "KERNEL(test)(float* x) {\n\
                    if (threadIdx.x < 7) x[0] = __shfl_xor_sync(~0u, 1.0f, 1);\n\
                    else\n x[1] = __shfl_xor_sync(~0u, 2.0f, 1);\n\
                }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 2]);
    let message = message(rig.run(text, grid(1, 32), args![x]));
    assert!(message.contains("divergent warp operation"), "{message}");
}

#[test]
fn a_device_that_has_failed_does_nothing_more() {
    let rig = Rig::new(1);
    let x = rig.put(&[0f32]);
    let first = rig.run("KERNEL(test)(float* x) { __trap(); }", grid(1, 32), args![x]);
    let first = message(first);
    assert!(first.contains("trapped"), "{first}");
    assert_eq!(message(rig.get::<f32>(x, 1).map(drop)), first);
}

#[test]
fn lanes_exchange_values() {
    let text = "KERNEL(test)(int* x) {\n\
                    int lane = threadIdx.x;\n\
                    x[lane] = __shfl_sync(~0u, lane, 5);\n\
                    x[32 + lane] = __shfl_xor_sync(~0u, lane, 3);\n\
                    x[64 + lane] = __shfl_down_sync(~0u, lane, 4, 8);\n\
                    x[96 + lane] = __shfl_up_sync(~0u, lane, 4, 8);\n\
                    x[128 + lane] = __ballot_sync(~0u, lane % 3 == 0);\n\
                    // Some lanes by themselves, and then all.\n\
                    int some = lane < 8 ? __shfl_sync(0xffu, lane, 1) : 0;\n\
                    x[160 + lane] = __shfl_sync(~0u, some + lane, 3);\n\
                    x[192 + lane] = __any_sync(~0u, lane == 7) + 2 * __all_sync(~0u, lane < 32);\n\
                }";
    for seed in 0..10 {
        let rig = Rig::new(seed);
        let x = rig.put(&[0i32; 7 * 32]);
        rig.run(text, grid(1, 32), args![x]).expect("a run");
        let x: Vec<i32> = rig.get(x, 7 * 32).expect("values");
        let ballot = (0..32).filter(|lane| lane % 3 == 0).fold(0, |bits, lane| bits | 1 << lane);
        for lane in 0..32usize {
            let at = |part: usize| x[part * 32 + lane];
            let l = lane as i32;
            let down = if l % 8 < 4 { l + 4 } else { l };
            let up = if l % 8 < 4 { l } else { l - 4 };
            assert_eq!([at(0), at(1), at(2), at(3)], [5, l ^ 3, down, up]);
            assert_eq!([at(4), at(5), at(6)], [ballot, 4, 3]);
        }
    }
}

#[test]
fn shuffles_from_outside_the_mask_are_nan() {
    let text = "KERNEL(test)(float* x) { if (threadIdx.x < 16) x[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 16); }";
    let rig = Rig::new(1);
    let x = rig.put(&[0f32; 16]);
    rig.run(text, grid(1, 32), args![x]).expect("a run");
    assert!(rig.get::<f32>(x, 16).expect("values").iter().all(|x| x.is_nan()));
}

#[test]
fn barriers_count_votes() {
    let text = "KERNEL(test)(int* x) {\n\
                    int count = __syncthreads_count(threadIdx.x < 70);\n\
                    int any = __syncthreads_or(threadIdx.x == 99);\n\
                    int all = __syncthreads_and(threadIdx.x < 99);\n\
                    x[threadIdx.x] = count + 1000 * any + 2000 * all;\n\
                }";
    let rig = Rig::new(3);
    let x = rig.put(&[0i32; 100]);
    rig.run(text, grid(1, 100), args![x]).expect("a run");
    assert_eq!(rig.get::<i32>(x, 100).expect("values"), [1070; 100]);
}

//! Barriers, and what the lanes of a warp do together.

use crate::rig::{Rig, args, grid, message};

/// Sums of blocks, by a tree in shared memory.
const SUM: &str = r#"
KERNEL(test)(const float* x, float* sums) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    BARRIER
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        BARRIER
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
"#;

fn sums(seed: u64, barrier: &str) -> Vec<f32> {
    let rig = Rig::new(seed);
    let x: Vec<f32> = (0..3 * 256).map(|i| i as f32).collect();
    let (x, sums) = (rig.put(&x), rig.put(&[0f32; 3]));
    rig.run(&SUM.replace("BARRIER", barrier), grid(3, 256), args![x, sums]).expect("a run");
    rig.get(sums, 3).expect("sums")
}

#[test]
fn a_tree_of_sums_is_right_in_any_order() {
    for seed in 0..20 {
        assert_eq!(sums(seed, "__syncthreads();"), [32640.0, 98176.0, 163712.0]);
    }
}

#[test]
fn a_missing_barrier_shows() {
    for seed in 0..20 {
        assert_ne!(sums(seed, ""), [32640.0, 98176.0, 163712.0], "seed {seed}");
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

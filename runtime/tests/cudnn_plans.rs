//! Execution plans of attention for described devices, by the library itself.
//!
//! The library is large and not required for building and testing: if it is not found, these tests say so and check
//! nothing. With `MESHWRIGHT_REQUIRE_CUDNN=1` they fail instead. They need `libcudnn.so.9` and `libnvrtc.so.13`, found
//! as for training (`MESHWRIGHT_CUDA_LIBS`), and a C compiler.
#![cfg(feature = "cuda")]

#[path = "support/stub.rs"]
mod stub;

use std::io::Write;
use std::sync::OnceLock;
use std::time::Instant;

use meshwright_cuda::FusedShape;
use meshwright_cuda::cudnn::{
    AttentionPass, BandMask, CudnnAttentionSizes, DeviceDescription, ExecutionPlan, PlanTarget,
    TargetDevice, cudnn_present,
};

use meshwright::backend::{AttentionShape, Band};

const FORWARD: AttentionPass = AttentionPass::Forward;
const EXACT: AttentionPass = AttentionPass::Backward { deterministic: true };
const ATOMIC: AttentionPass = AttentionPass::Backward { deterministic: false };

/// Returns true if the library is available; panics if it is required and missing.
fn library() -> bool {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // Loaded first, so that the library sees no other driver: it could not load kernels of another architecture
        // than its device.
        stub::load("cudnn/no_driver.c", "libcuda.so.1")?;
        cudnn_present()
    });
    if let Err(why) = found {
        let required = std::env::var("MESHWRIGHT_REQUIRE_CUDNN").is_ok_and(|value| value == "1");
        assert!(!required, "MESHWRIGHT_REQUIRE_CUDNN is set, but {why}");
        say(&format!("NOT CHECKED, plans of cuDNN: {why}"));
    }
    found.is_ok()
}

/// Writes a line that is visible even if tests pass.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn target(device: &str) -> PlanTarget {
    let (json, capability) = match device {
        "a100" => (include_str!("fixtures/cudnn/a100.json"), (8, 0)),
        "h200" => (include_str!("fixtures/cudnn/h200.json"), (9, 0)),
        "b200" => (include_str!("fixtures/cudnn/b200.json"), (10, 0)),
        other => unreachable!("no fixture for {other}"),
    };
    let properties = DeviceDescription::from_json(json).expect("the fixture describes a device");
    PlanTarget { device: TargetDevice::Described(properties), capability }
}

fn sizes(
    batch: usize,
    heads: usize,
    kv_heads: usize,
    seq: usize,
    head_dim: usize,
) -> CudnnAttentionSizes {
    let shape = AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], Band::CAUSAL);
    CudnnAttentionSizes::from(&FusedShape::from_attention(&shape).expect("a fused shape"))
}

fn plan(
    device: &str,
    sizes: CudnnAttentionSizes,
    pass: AttentionPass,
) -> (ExecutionPlan, Vec<String>) {
    let target = target(device);
    let start = Instant::now();
    let plan = ExecutionPlan::new(sizes, pass, &target)
        .unwrap_or_else(|error| panic!("{device}: {error}"));
    let took = start.elapsed().as_millis();
    let kernels = plan.kernels().expect("a plan has kernels");
    let workspace = plan.workspace();
    say(&format!("{device}: {pass}, {sizes}: {took} ms, {workspace} bytes, {kernels:?}"));
    (plan, kernels)
}

/// Returns the size of one bf16 per score, and of key and value gradients per query head if heads are grouped.
fn expected(sizes: CudnnAttentionSizes) -> (usize, usize) {
    let positions = sizes.batch * sizes.heads * sizes.queries;
    let grouped = if sizes.is_grouped() { 4 * positions * sizes.head_dim } else { 0 };
    (2 * (positions * sizes.keys) as usize, grouped as usize)
}

/// Checks that every pass of typical shapes uses kernels of `architecture`.
fn usual_shapes(device: &str, architecture: &str) {
    if !library() {
        return;
    }
    const SLACK: usize = 1 << 20;
    for sizes in [
        sizes(8, 12, 12, 1024, 64),
        sizes(1, 32, 8, 4096, 128),
        sizes(4, 25, 25, 1024, 64),
        sizes(2, 32, 8, 4096, 64),
    ] {
        let (scores, grouped) = expected(sizes);
        for pass in [FORWARD, EXACT, ATOMIC] {
            let (plan, kernels) = plan(device, sizes, pass);
            let direction = if pass == FORWARD { "fprop" } else { "bprop" };
            assert!(!kernels.is_empty());
            for kernel in &kernels {
                assert!(kernel.contains(architecture) && kernel.contains(direction), "{kernel}");
            }
            let (least, most) = match (pass, device) {
                (AttentionPass::Forward, _) => (0, SLACK),
                // Only Blackwell sums query gradients deterministically without storing score gradients.
                (EXACT, "b200") => (grouped, 2 * grouped + SLACK),
                (EXACT, _) => (scores + grouped, scores + 2 * grouped + SLACK),
                // Ampere's kernel has an f32 accumulator for key and value gradients, or for query gradients.
                (ATOMIC, _) => (grouped, 2 * grouped + scores / 4 + SLACK),
            };
            let workspace = plan.workspace();
            assert!((least..=most).contains(&workspace), "{workspace} not in {least}..={most}");
        }
    }
}

#[test]
fn ampere_has_plans() {
    usual_shapes("a100", "sm80");
}

#[test]
fn hopper_has_plans() {
    usual_shapes("h200", "sm90");
}

#[test]
fn blackwell_has_plans() {
    usual_shapes("b200", "sm100");
}

/// Lengths that are not a multiple of any tile, full attention, and other head dims.
#[test]
fn odd_shapes_have_plans() {
    if !library() {
        return;
    }
    let whole = CudnnAttentionSizes { mask: BandMask::ALL, ..sizes(2, 4, 4, 1024, 64) };
    for sizes in [sizes(1, 2, 1, 77, 64), sizes(3, 6, 2, 1000, 80), whole] {
        for pass in [FORWARD, EXACT, ATOMIC] {
            plan("h200", sizes, pass);
        }
    }
}

/// Windows, other keys than queries, gaps between samples, and values of another width.
#[test]
fn other_kinds_have_plans() {
    if !library() {
        return;
    }
    let square = sizes(2, 8, 2, 1024, 64);
    let window = BandMask { right: Some(0), left: Some(256) };
    let longer = CudnnAttentionSizes { keys: 1500, key_pitch: 1600, ..square };
    let kinds = [
        CudnnAttentionSizes { mask: window, ..square },
        CudnnAttentionSizes { mask: BandMask { right: Some(100), left: Some(256) }, ..square },
        CudnnAttentionSizes { mask: BandMask { right: None, left: Some(256) }, ..square },
        CudnnAttentionSizes { mask: BandMask::ALL, ..longer },
        CudnnAttentionSizes { mask: BandMask { right: Some(476), left: None }, ..longer },
        CudnnAttentionSizes { mask: BandMask { right: Some(476), left: Some(100) }, ..longer },
        CudnnAttentionSizes { keys: 300, key_pitch: 300, mask: BandMask::ALL, ..square },
        CudnnAttentionSizes { head_dim: 192, value_dim: 128, ..square },
    ];
    for device in ["a100", "h200", "b200"] {
        for sizes in kinds {
            for pass in [FORWARD, EXACT, ATOMIC] {
                // What an architecture or a version does not take is refused with a reason, and left to our own
                // kernels.
                match ExecutionPlan::new(sizes, pass, &target(device)) {
                    Ok(plan) => {
                        let kernels = plan.kernels().expect("a plan has kernels");
                        assert!(!kernels.is_empty(), "{device}: {pass}, {sizes}");
                        say(&format!("{device}: {pass}, {sizes}: {kernels:?}"));
                    }
                    Err(error) => {
                        let error = error.to_string();
                        let expected = format!("has no engine for {pass}, {sizes}");
                        assert!(error.contains(&expected), "{device}: {error}");
                        say(&format!("REFUSED, {device}: {error}"));
                    }
                }
            }
        }
    }
}

/// A refusal is an error that names the request.
#[test]
fn a_refusal_has_reasons() {
    if !library() {
        return;
    }
    let huge = sizes(1, 2, 2, 128, 1024);
    let error =
        ExecutionPlan::new(huge, EXACT, &target("h200")).expect_err("no engine has such heads");
    let error = error.to_string();
    for part in ["cuDNN", "has no engine for the deterministic backward", "head_dim 1024"] {
        assert!(error.contains(part), "{error}");
    }
}

/// An invalid device description is an error that names the attribute.
#[test]
fn a_device_has_to_be_described() {
    if !library() {
        return;
    }
    let error = DeviceDescription::from_json("{}").expect_err("nothing is described").to_string();
    assert!(error.contains("DEVICEPROP") && error.contains("CUDNN_STATUS_"), "{error}");
    let json = target("h200");
    let TargetDevice::Described(properties) = json.device else {
        unreachable!("a described device")
    };
    assert!(properties.to_json().expect("what was set").contains("NVIDIA H200"));
}

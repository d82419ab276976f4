//! Plans of attention for devices that are not here, by the library itself.
//!
//! The library is not part of what building and testing needs, and is large: where it is not found these tests say so and
//! check nothing. With `MESHWRIGHT_REQUIRE_CUDNN=1` they fail there. They need `libcudnn.so.9` and `libnvrtc.so.13`, found as
//! when a model is trained (`MESHWRIGHT_CUDA_LIBS`), and a C compiler.
#![cfg(feature = "cuda")]

#[path = "support/stub.rs"]
mod stub;

use std::io::Write;
use std::sync::OnceLock;
use std::time::Instant;

use meshwright::backend::AttentionShape;
use meshwright::backend::cuda::cudnn::{
    AttentionPass, AttentionSizes, DeviceDescription, ExecutionPlan, PlanTarget, TargetDevice,
    cudnn_present,
};

const FORWARD: AttentionPass = AttentionPass::Forward;
const EXACT: AttentionPass = AttentionPass::Backward { deterministic: true };
const ATOMIC: AttentionPass = AttentionPass::Backward { deterministic: false };

/// Whether the library is here; panics if it has to be and is not.
fn library() -> bool {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // First, so that the library sees no other driver even where there is one: it could not load kernels of another
        // architecture than that of its device.
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

/// Writes a line that is seen even where tests pass.
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
) -> AttentionSizes {
    let scale = (head_dim as f32).sqrt().recip();
    let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim, scale, causal: true };
    AttentionSizes::from(&shape)
}

fn plan(device: &str, sizes: AttentionSizes, pass: AttentionPass) -> (ExecutionPlan, Vec<String>) {
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

/// Bytes of one bf16 for each score, and of keys' and values' gradients for each query head where heads are grouped.
fn expected(sizes: AttentionSizes) -> (usize, usize) {
    let positions = sizes.batch * sizes.heads * sizes.seq;
    let grouped = if sizes.is_grouped() { 4 * positions * sizes.head_dim } else { 0 };
    (2 * (positions * sizes.seq) as usize, grouped as usize)
}

/// Every pass of the usual shapes, by kernels of `architecture`.
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
                // Only Blackwell adds up gradients of queries in a fixed order without storing those of scores.
                (EXACT, "b200") => (grouped, 2 * grouped + SLACK),
                (EXACT, _) => (scores + grouped, scores + 2 * grouped + SLACK),
                // Ampere's kernel has an f32 for each element of keys and values, or of queries.
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

/// Lengths that are no multiple of any tile, attention to all positions, and other head sizes.
#[test]
fn odd_shapes_have_plans() {
    if !library() {
        return;
    }
    let whole = AttentionSizes { causal: false, ..sizes(2, 4, 4, 1024, 64) };
    for sizes in [sizes(1, 2, 1, 77, 64), sizes(3, 6, 2, 1000, 80), whole] {
        for pass in [FORWARD, EXACT, ATOMIC] {
            plan("h200", sizes, pass);
        }
    }
}

/// What the library refuses is an error that says who was asked for what.
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

/// What is no description of a device is an error that names the attribute.
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

//! Selection of the attention kernel by operands and device.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright_conformance::{AttentionCase, attention_shape};
use meshwright_cuda::{CallKind, DeviceProperties, Driver, KernelSource, NullAttention};
use meshwright_gpu_sim::{SimDevice, h100, not_checked_on_gpu};

use super::changed::Changed;
use crate::support::device_with;

/// Returns the kernels that a case launches, except those that all implementations share.
fn kernels(properties: DeviceProperties, case: &AttentionCase, skew: usize) -> Vec<String> {
    let device = SimDevice::with(1, properties);
    case.run(&device_with(Arc::new(device.driver()), skew));
    let launches = device.log();
    let launched = launches.iter().filter_map(|entry| Some(entry.launch()?.0.to_string()));
    launched.filter(|kernel| !kernel.starts_with("attention_deltas")).collect()
}

const TENSOR: [&str; 3] =
    ["attention_forward", "attention_backward_keys", "attention_backward_queries"];

#[test]
fn tensor_cores_take_aligned_bf16() {
    if not_checked_on_gpu() {
        return;
    }
    let case = AttentionCase::new(attention_shape(1, 20, [1, 1, 64], true), DType::Bf16);
    for skew in [0, 8] {
        assert_eq!(kernels(h100(), &case, skew), TENSOR);
    }
    let plain = [
        "attention_plain_forward_bf16",
        "attention_plain_backward_keys_bf16",
        "attention_plain_backward_queries_bf16",
    ];
    assert_eq!(kernels(h100(), &case, 4), plain, "not aligned to 16 bytes");
    let odd = AttentionCase::new(attention_shape(1, 20, [1, 1, 12], true), DType::Bf16);
    assert_eq!(kernels(h100(), &odd, 0), plain, "rows are not aligned");
    let f32 = AttentionCase::new(attention_shape(1, 20, [1, 1, 64], true), DType::F32);
    assert_eq!(kernels(h100(), &f32, 0), plain.map(|name| name.replace("bf16", "f32")));
}

#[test]
fn large_heads_have_a_kernel_for_each_gradient() {
    if not_checked_on_gpu() {
        return;
    }
    let case = AttentionCase::new(attention_shape(1, 20, [1, 1, 144], true), DType::Bf16);
    let [forward, keys, queries] = TENSOR;
    let expected = [forward, keys, "attention_backward_values", queries];
    assert_eq!(kernels(h100(), &case, 0), expected);
}

#[test]
fn little_shared_memory_disables_tensor_cores() {
    if not_checked_on_gpu() {
        return;
    }
    let properties = DeviceProperties { shared_memory: 99 * 1024, ..h100() };
    let wide = AttentionCase::new(attention_shape(1, 20, [1, 1, 256], true), DType::Bf16);
    assert!(kernels(properties.clone(), &wide, 0).iter().all(|name| name.contains("plain")));
    let usual = AttentionCase::new(attention_shape(1, 20, [1, 1, 64], true), DType::Bf16);
    assert_eq!(kernels(properties, &usual, 0), TENSOR);
}

#[test]
fn vendor_attention_takes_supported_aligned_bf16() {
    if not_checked_on_gpu() {
        return;
    }
    let bf16 = AttentionCase::new(attention_shape(1, 20, [1, 1, 64], true), DType::Bf16);
    let f32 = AttentionCase::new(attention_shape(1, 20, [1, 1, 64], true), DType::F32);
    let in_backward = "cuDNN in forward, own kernels in backward (cuDNN has none for these sizes)";
    for (case, skew, backward, expected, factor, reported) in [
        (&bf16, 0, true, vec![CallKind::Attention, CallKind::AttentionBackward], 4 + 10, "cuDNN"),
        (&bf16, 0, false, vec![CallKind::Attention], 4 + 14, in_backward),
        (&bf16, 4, true, vec![], 4 + 14, "own kernels (operands are not aligned to 16 bytes)"),
        (&f32, 0, true, vec![], 4 + 14, "own kernels (operands are not bf16)"),
    ] {
        let attention = Some(NullAttention { supports_backward: backward });
        let driver = Arc::new(Changed { attention, ..Changed::new(1, KernelSource::clone) });
        let side = device_with(Arc::clone(&driver) as Arc<dyn Driver>, skew);
        case.run(&side);
        assert_eq!(*driver.calls.lock().expect("no panic"), expected);
        assert_eq!(side.backend().flops(), factor * 20 * 21 / 2 * 64);
        assert_eq!(side.backend().attention_implementations().unwrap(), reported);
    }
}

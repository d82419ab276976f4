//! Which kernels take which operands.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::backend::cuda::Properties;
use meshwright_gpu_sim::{Call, SimDevice, h100};

use crate::case::{Case, shape};
use crate::support::device_with;

/// The kernels that a case runs, without those that both ways share.
fn kernels(properties: Properties, case: &Case, skew: usize) -> Vec<String> {
    let device = SimDevice::with(1, properties);
    case.run(&device_with(Arc::new(device.driver()), skew));
    let launched = device.log().into_iter().filter_map(|entry| match entry.call {
        Call::Launch { kernel, .. } => Some(kernel),
        _ => None,
    });
    launched.filter(|kernel| !kernel.starts_with("attention_deltas")).collect()
}

const TENSOR: [&str; 3] =
    ["attention_forward", "attention_backward_keys", "attention_backward_queries"];

#[test]
fn tensor_cores_take_aligned_bf16() {
    let case = Case::new(shape(1, 20, [1, 1, 64], true), DType::Bf16);
    for skew in [0, 8] {
        assert_eq!(kernels(h100(), &case, skew), TENSOR);
    }
    let plain = [
        "attention_plain_forward_bf16",
        "attention_plain_backward_keys_bf16",
        "attention_plain_backward_queries_bf16",
    ];
    assert_eq!(kernels(h100(), &case, 4), plain, "not aligned to 16 bytes");
    let odd = Case::new(shape(1, 20, [1, 1, 12], true), DType::Bf16);
    assert_eq!(kernels(h100(), &odd, 0), plain, "rows are not aligned");
    let f32 = Case::new(shape(1, 20, [1, 1, 64], true), DType::F32);
    assert_eq!(kernels(h100(), &f32, 0), plain.map(|name| name.replace("bf16", "f32")));
}

#[test]
fn large_heads_have_a_kernel_for_each_gradient() {
    let case = Case::new(shape(1, 20, [1, 1, 144], true), DType::Bf16);
    let [forward, keys, queries] = TENSOR;
    let expected = [forward, keys, "attention_backward_values", queries];
    assert_eq!(kernels(h100(), &case, 0), expected);
}

#[test]
fn a_device_with_little_shared_memory_does_without_tensor_cores() {
    let properties = Properties { shared_memory: 99 * 1024, ..h100() };
    let wide = Case::new(shape(1, 20, [1, 1, 256], true), DType::Bf16);
    assert!(kernels(properties.clone(), &wide, 0).iter().all(|name| name.contains("plain")));
    let usual = Case::new(shape(1, 20, [1, 1, 64], true), DType::Bf16);
    assert_eq!(kernels(properties, &usual, 0), TENSOR);
}

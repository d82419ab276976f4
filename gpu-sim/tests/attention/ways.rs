//! Which kernels take which operands.

use std::sync::{Arc, Mutex};

use meshwright::backend::cuda::{
    AttentionGradients, AttentionOperands, DriverError, FusedAttention, Properties, Source, Stream,
};
use meshwright::backend::{AttentionShape, DType};
use meshwright_gpu_sim::{Call, SimDevice, SimDriver, h100, not_checked_on_gpu};

use crate::case::{Case, shape};
use crate::changed::Changed;
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
    if not_checked_on_gpu() {
        return;
    }
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
    if not_checked_on_gpu() {
        return;
    }
    let case = Case::new(shape(1, 20, [1, 1, 144], true), DType::Bf16);
    let [forward, keys, queries] = TENSOR;
    let expected = [forward, keys, "attention_backward_values", queries];
    assert_eq!(kernels(h100(), &case, 0), expected);
}

#[test]
fn a_device_with_little_shared_memory_does_without_tensor_cores() {
    if not_checked_on_gpu() {
        return;
    }
    let properties = Properties { shared_memory: 99 * 1024, ..h100() };
    let wide = Case::new(shape(1, 20, [1, 1, 256], true), DType::Bf16);
    assert!(kernels(properties.clone(), &wide, 0).iter().all(|name| name.contains("plain")));
    let usual = Case::new(shape(1, 20, [1, 1, 64], true), DType::Bf16);
    assert_eq!(kernels(properties, &usual, 0), TENSOR);
}

/// A vendor's attention that notes what it is asked for.
struct Vendor {
    calls: Arc<Mutex<Vec<&'static str>>>,
    backward: bool,
}

impl Vendor {
    fn note(&self, call: &'static str) {
        self.calls.lock().expect("nobody panics").push(call);
    }
}

impl FusedAttention for Vendor {
    fn supports(&self, _: &AttentionShape) -> bool {
        true
    }

    fn supports_backward(&self, _: &AttentionShape, _: usize) -> bool {
        self.backward
    }

    unsafe fn forward(
        &self,
        _: Stream,
        _: &AttentionShape,
        _: &AttentionOperands,
    ) -> Result<(), DriverError> {
        self.note("forward");
        Ok(())
    }

    unsafe fn backward(
        &self,
        _: Stream,
        _: &AttentionShape,
        _: &AttentionOperands,
        _: &AttentionGradients,
    ) -> Result<(), DriverError> {
        self.note("backward");
        Ok(())
    }
}

#[test]
fn the_vendor_takes_aligned_bf16_that_it_supports() {
    if not_checked_on_gpu() {
        return;
    }
    let bf16 = Case::new(shape(1, 20, [1, 1, 64], true), DType::Bf16);
    let f32 = Case::new(shape(1, 20, [1, 1, 64], true), DType::F32);
    for (case, skew, backward, expected, factor) in [
        (&bf16, 0, true, vec!["forward", "backward"], 4 + 10),
        (&bf16, 0, false, vec!["forward"], 4 + 14),
        (&bf16, 4, true, vec![], 4 + 14),
        (&f32, 0, true, vec![], 4 + 14),
    ] {
        let calls = Arc::default();
        let attention = Vendor { calls: Arc::clone(&calls), backward };
        let driver = Changed {
            device: SimDriver::new(1),
            change: Source::clone,
            attention: Some(Box::new(attention)),
        };
        let side = device_with(Arc::new(driver), skew);
        case.run(&side);
        assert_eq!(*calls.lock().expect("nobody panics"), expected);
        assert_eq!(side.backend().flops(), factor * 20 * 21 / 2 * 64);
    }
}

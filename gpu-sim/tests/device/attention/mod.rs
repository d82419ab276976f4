//! Attention kernels of a simulated device, or of a GPU.

mod barriers;
mod changed;
mod dispatch;

use meshwright::backend::DType;
use meshwright_conformance::{AttentionCase, attention_shape};
use meshwright_gpu_sim::not_checked;

use crate::support::{device, runs_cudnn};

#[test]
fn operations_are_counted() {
    if runs_cudnn() {
        return not_checked("cuDNN computes fewer products");
    }
    for (causal, pairs) in [(true, 100 * 101 / 2), (false, 100 * 100)] {
        let case = AttentionCase::new(attention_shape(2, 100, [2, 1, 16], causal), DType::Bf16);
        let device = device(1, 0);
        case.run(&device);
        assert_eq!(device.backend().flops(), (4 + 14) * pairs * 16 * 2 * 2);
    }
    let case = AttentionCase::new(attention_shape(1, 10, [1, 1, 144], false), DType::Bf16);
    let device = device(1, 0);
    case.run(&device);
    assert_eq!(device.backend().flops(), (4 + 16) * 10 * 10 * 144);
}

//! A step that is computed by hand, and the numbers that follow from a step.

use meshwright_backend::{DType, Kernel, KernelOp};
use meshwright_core::__internal::Pass;
use meshwright_mesh::{AxisId, AxisSet};

use super::fixture::{LogWriter, h100, message, plain};
use crate::{CommOpKind, Computation, EventKind, StepWork, simulate};

/// Two stages on 16 GPUs, `tp=8`: one gather, one matmul and one message forward; a loss and an update.
#[test]
fn a_small_step_is_exact() {
    let tp = AxisSet::of(AxisId::Tp);
    let whole = 8192.0 * 16384.0 * 2.0;
    let sent = (whole * 7.0 / 8.0) as u64;
    let matmul = Kernel {
        op: KernelOp::Gemm,
        dims: [8192, 2048, 16384, 0],
        dtype: DType::Bf16,
        flops: 2 * 8192 * 2048 * 16384,
        read: 2 * (8192 + 2048) * 16384,
        written: 2 * 8192 * 2048,
    };
    let shard = (whole / 8.0) as u64;
    let logs = [0, 1].map(|position| {
        let mut log = LogWriter::new();
        if position == 1 {
            let received = log.message(CommOpKind::Recv, message(0, 0), shard);
            log.wait(received);
        }
        log.begin(Pass::Forward, "blocks.0", None);
        log.blocking(CommOpKind::AllGather, tp, sent);
        log.event(EventKind::Kernel(matmul));
        if position == 0 {
            log.message(CommOpKind::Send, message(0, 0), shard);
        } else {
            log.begin(Pass::Forward, "head", None);
            log.event(EventKind::Kernel(matmul));
            log.kernel(KernelOp::CrossEntropyKernel, 1 << 30);
        }
        log.begin(Pass::Update, "", None);
        log.kernel(KernelOp::Adamw, 1 << 32);
        log.blocking(CommOpKind::AllReduce, AxisSet::ALL, 16);
        log.finish()
    });
    let step = simulate(&h100(), &"pp=2,tp=8".parse().unwrap(), &logs, &plain()).unwrap();

    let gather = 20e-6 + sent as f64 / 361e9;
    // 64 x 8 tiles are 3.88 waves on 132 units.
    let waves: f64 = 512.0 / 132.0;
    let rate = 989.4e12 * 0.745 * (waves / 4.0).powf(0.25) * 16384.0 / 16424.0;
    let gemm = matmul.flops as f64 / rate + 4e-6;
    let pass = |bytes: u64| bytes as f64 / (3.35e12 * 0.83) + 2e-6;
    let sent_message = 90e-6 + shard as f64 / 26e9;
    let (loss, update) = (pass(1 << 30), pass(1 << 32));
    // A tree over both nodes: every rank of a node sends an eighth of what leaves it.
    let norm = 20e-6
        + 90e-6
        + (2.0 * 16.0 * 16.0 / 15.0 / 2.0 / 361e9_f64).max(16.0 * 16.0 / 15.0 / 8.0 / 26e9);
    let first = gather + gemm + sent_message;
    let expected = first + gather + 2.0 * gemm + loss + update + norm;
    assert!((step.seconds / expected - 1.0).abs() < 1e-9, "{} {expected}", step.seconds);

    let [early, late] = &step.positions[..] else { panic!("two positions") };
    let close = |value: f64, expected: f64| {
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
    };
    close(late.computation(Computation::Matmul), gemm);
    close(late.computation(Computation::Head), gemm + loss);
    close(late.computation(Computation::Update), update);
    close(late.exposed_over(tp), gather);
    close(late.exposed_over(AxisSet::ALL), norm);
    close(late.waiting, first);
    // The first position waits at the collective of both for the rest of the second one.
    close(early.waiting, sent_message + gather + gemm + loss + gemm);
    close(early.total(), expected);
}

/// The arithmetic of Llama 3: 405B parameters, 15.6T tokens, 16,384 GPUs.
#[test]
fn utilization_of_llama_3() {
    let tokens = 2048.0 * 8192.0;
    let work = StepWork {
        tokens,
        model_flops_full: 7.0 * 405e9 * tokens,
        model_flops_causal: 6.0 * 405e9 * tokens,
        hardware_flops: 8.0 * 405e9 * tokens,
        gpus: 16_384,
        peak: 989.4e12,
    };
    let utilization = work.utilization(6.7);
    let close =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-3, "{value}");
    close(utilization.mfu_full, 0.4379);
    close(utilization.mfu_causal, 0.3754);
    close(utilization.hfu, 0.5005);
    close(utilization.tokens_per_second, 2.504e6);
    let duration = utilization.duration(15.6e12);
    close(duration.days, 72.10);
    close(duration.gpu_hours, 28.35e6);
}

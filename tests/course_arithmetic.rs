//! The arithmetic of large-scale training, as courses teach it: dry runs, the simulator and the catalog agree with
//! numbers that are computed by hand.

use std::collections::HashMap;
use std::sync::Arc;

use meshwright::backend::{Category, DType};
use meshwright::mesh::{AxisId, AxisSet};
use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::schedule::{Costs, ScheduleKind, lower_schedule, simulate};
use meshwright::sim::cluster::Catalog;
use meshwright::sim::{CommOpKind, EventKind, Pass, StepLog};
use meshwright::train::{Config, LanguageModel, Trainer};

/// Sizes of Llama-3-405B.
const LLAMA_405B: &str =
    "--hidden 16384 --layers 126 --heads 128 --kv-heads 8 --ffn 53248 --vocab 128256";

fn logs<M: LanguageModel>(flags: &str) -> Vec<Arc<StepLog>> {
    let line = format!("train --explain --sample-tokens 0 {flags}");
    let config = Config::parse(line.split_whitespace()).unwrap();
    Trainer::<M>::new(config).unwrap().step_logs().unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{found} instead of {expected}");
}

/// Bytes of the buffers of `bytes` each that the forward pass keeps for backward.
fn kept(log: &StepLog, bytes: u64) -> u64 {
    let mut live = HashMap::new();
    for event in log.events.iter() {
        if log.context(&event).pass == Pass::Backward {
            break;
        }
        match event.kind {
            EventKind::Alloc { buffer, bytes, category: Category::Activations } => {
                live.insert(buffer, bytes);
            }
            EventKind::Free { buffer, .. } => {
                live.remove(&buffer);
            }
            _ => {}
        }
    }
    live.into_values().filter(|kept| *kept == bytes).sum()
}

/// The hidden activations of the feed-forward networks of 126 layers, 4 * 16384 wide, for 4096 tokens in bf16, are
/// 2 * 126 * 4 * 16384 * 4096 B = 67.6 GB = 63.0 GiB. A step keeps them before and after the activation function.
#[test]
fn feed_forward_activations() {
    let flags = "--device cuda --hidden 16384 --layers 126 --heads 128 --ffn 65536 --seq 4096 --batch 1 --mesh 1 \
                 --recompute none --vocab 1024";
    let hidden = 2 * 4 * 16384 * 4096;
    let kept = kept(&logs::<Gpt2>(flags)[0], hidden);
    assert_near(126.0 * hidden as f64, 67.6e9, 1e-3);
    assert_near(126.0 * hidden as f64 / f64::from(1 << 30), 63.0, 1e-3);
    assert_eq!(kept, 2 * 126 * hidden);
}

fn state(log: &StepLog) -> [u64; 3] {
    [Category::Parameters, Category::Gradients, Category::Optimizer]
        .map(|category| log.live_at_start[category as usize])
}

/// A parameter and its gradient in f32 are 8 bytes: 1 B parameters are 8 GB, and 100 B parameters 800 GB, which are 10
/// GB on each of 80 GPUs.
#[test]
fn sharded_parameters() {
    let sizes = "--heads 80 --vocab 32000 --seq 16 --batch 80 --optimizer sgd --momentum 0 --dtype f32 --device cuda";
    let large = format!("{sizes} --hidden 10240 --layers 79 --ffn 27648");
    let whole: u64 = state(&logs::<Llama>(&format!("{large} --mesh 1"))[0]).iter().sum();
    let shard: u64 = state(&logs::<Llama>(&format!("{large} --mesh fsdp=80"))[0]).iter().sum();
    assert_near(whole as f64, 800e9, 0.02);
    assert_near(shard as f64, whole as f64 / 80.0, 1e-3);
    let small = format!("{sizes} --hidden 1280 --layers 35 --ffn 5120 --mesh 1");
    let small: u64 = state(&logs::<Llama>(&small)[0]).iter().sum();
    assert_near(small as f64, 8e9, 0.02);
}

/// Mixed precision with AdamW takes 18 bytes a parameter: 2 for the parameter in bf16, 4 for its gradient in f32, and
/// 12 for the parameter and both moments in f32.
#[test]
fn state_of_mixed_precision() {
    let flags = "--device cuda --hidden 512 --layers 4 --heads 8 --seq 64 --batch 2 --mesh 1";
    let [parameters, gradients, optimizer] = state(&logs::<Llama>(flags)[0]);
    assert_eq!([2 * parameters, 6 * parameters], [gradients, optimizer]);
}

/// 24,576 H100 with 989.4 TFLOP/s each have 24.3 EFLOP/s, and with 80 GB each 1.97 PB of memory.
#[test]
fn the_llama_3_cluster() {
    let cluster = Catalog::new().cluster("llama3").unwrap();
    let gpus = cluster.gpus.unwrap() as f64;
    assert_eq!(gpus, 24_576.0);
    assert_near(gpus * cluster.gpu.peak_of(DType::Bf16).unwrap().value, 24.3e18, 1e-3);
    assert_near(gpus * cluster.gpu.memory.value, 1.966e15, 1e-3);
}

/// GPipe with 4 stages and 4 micro-batches uses 4 / (4 + 4 - 1) = 57.1 % of its time, and 16 stages without
/// micro-batches 1 / 16.
#[test]
fn pipeline_utilization() {
    let utilization = |stages: usize, micro_batches: usize| {
        let schedule = ScheduleKind::GPipe.generate(stages, 1, micro_batches).unwrap();
        let step = simulate(&lower_schedule(&schedule, usize::MAX), Costs::default()).unwrap();
        // A forward and both parts of a backward pass of each micro-batch, of unit cost.
        3.0 * micro_batches as f64 / step.makespan()
    };
    assert_near(utilization(4, 4), 0.5714, 1e-4);
    assert_near(utilization(16, 1), 1.0 / 16.0, 1e-9);
}

/// The matmuls of a step have 6 N T FLOPs, for N parameters of matmuls and T tokens: 102.1 TFLOP for the 1.04 B such
/// parameters of a Llama and 16,384 tokens.
#[test]
fn six_flops_per_parameter_and_token() {
    let flags = "--device cuda --hidden 2048 --layers 16 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --seq 4096 \
                 --batch 4 --mesh 1 --recompute none";
    let log = &logs::<Llama>(flags)[0];
    let flops = log.events.iter().map(|event| match event.kind {
        EventKind::Kernel(kernel) if kernel.op.is_matmul() => kernel.flops,
        _ => 0,
    });
    let layer = 2048 * (2 * 2048 + 2 * 512 + 3 * 8192);
    let parameters = 16 * layer + 2048 * 32_000;
    assert_eq!(flops.sum::<u64>(), 6 * parameters * 4 * 4096);
    assert_near(6.0 * parameters as f64 * 16_384.0, 102.1e12, 1e-3);
}

/// A layer of Llama-3-405B sends 8192 * 16384 * 2 * 7 / 8 B = 235 MB in each collective over tp=8: four in the forward
/// pass and six in the backward pass, beside the gradients of its norms.
#[test]
fn tensor_parallel_bytes() {
    let flags =
        format!("--device cuda {LLAMA_405B} --seq 8192 --batch 1 --mesh tp=8 --recompute none");
    let log = &logs::<Llama>(&flags)[0];
    let of_layer = |pass: Pass| {
        let calls = log.events.iter().filter_map(|event| match event.kind {
            EventKind::Call(call) => Some((log.context(&event), call)),
            _ => None,
        });
        let own =
            calls.filter(|(context, _)| context.pass == pass && &*context.layer == "blocks.60");
        let large = own.filter(|(_, call)| call.bytes > 1_000_000);
        large.map(|(_, call)| (call.axes, call.bytes)).collect::<Vec<_>>()
    };
    let bytes = 8192 * 16_384 * 2 * 7 / 8;
    assert_eq!(bytes, 234_881_024);
    assert_eq!(of_layer(Pass::Forward), [(AxisSet::of(AxisId::Tp), bytes); 4]);
    assert_eq!(of_layer(Pass::Backward), [(AxisSet::of(AxisId::Tp), bytes); 6]);
}

/// Each of 4096 tokens goes to two experts of a Mixtral 8x22B, whose layers are 6144 wide: a rank of ep=8 sends
/// 2 * 4096 * 6144 * 2 * 7 / 8 B = 88 MB to the experts in bf16, and as many back.
#[test]
fn expert_bytes() {
    let flags = "--device cuda --hidden 6144 --layers 2 --heads 48 --kv-heads 8 --ffn 16384 --vocab 32768 --seq 4096 \
                 --batch 8 --mesh ep=8 --recompute none";
    let log = &logs::<Mixtral>(flags)[0];
    let sent = log.events.iter().filter_map(|event| match event.kind {
        EventKind::Call(call) if call.op == CommOpKind::AllToAll => {
            let context = log.context(&event);
            (context.pass == Pass::Forward && &*context.layer == "blocks.1").then_some(call.bytes)
        }
        _ => None,
    });
    let bytes = 2 * 4096 * 6144 * 2 * 7 / 8;
    assert_eq!(sent.collect::<Vec<u64>>(), [bytes; 2]);
}

/// The logs of Llama-3-405B do not grow with the ranks that share its tokens, and take less than 100 MB.
#[test]
fn logs_of_many_ranks() {
    let of_ranks = |fsdp: usize| {
        let (batch, mesh) = (16 * fsdp, format!("pp=16,fsdp={fsdp},tp=8"));
        let flags = format!(
            "--device cuda {LLAMA_405B} --seq 8192 --batch {batch} --mesh {mesh} --micro-batches 16 --zero 1 \
             --schedule interleaved --virtual-stages 7"
        );
        logs::<Llama>(&flags).iter().map(|log| log.events.iter().count()).collect::<Vec<_>>()
    };
    let events = of_ranks(128);
    assert_eq!(events.len(), 16);
    assert_eq!(events, of_ranks(8));
    let bytes: usize = 12 * events.iter().sum::<usize>();
    assert!((1_000_000..100_000_000).contains(&bytes), "{bytes}");
}

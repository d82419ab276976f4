//! Every formula of kernels, collectives and messages.

use meshwright_backend::{DType, Kernel, KernelOp};
use meshwright_mesh::{AxisId, AxisSet, MeshShape};

use super::Times;
use crate::cluster::{Cluster, SharingFactors};
use crate::record::{CommCall, CommOpKind};
use crate::tests::fixture::{figure, h100, level, unit_cluster};

fn assert_close(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
}

fn kernel_seconds(cluster: &Cluster, op: KernelOp, dims: [u32; 4], flops: u64, bytes: u64) -> f64 {
    let kernel = Kernel { op, dims, dtype: DType::Bf16, flops, read: bytes, written: 0 };
    Times::new(cluster, &MeshShape::SINGLE).unwrap().of_kernel(&kernel).unwrap()
}

#[test]
fn matmuls_compute_or_move() {
    let cluster = h100();
    let rate = 989.4e12 * 0.745;
    let seconds = |dims: [u32; 4], flops, bytes| {
        kernel_seconds(&cluster, KernelOp::Gemm, dims, flops, bytes) - 4e-6
    };
    // Full waves: 132 tiles of 128 x 256.
    assert_close(
        seconds([128 * 132, 256, 4096, 0], 1 << 40, 0),
        (1u64 << 40) as f64 / rate * 4136.0 / 4096.0,
    );
    // One tile more, in a second wave.
    let used = (133.0 / 264.0_f64).powf(0.25);
    assert_close(
        seconds([128 * 132 + 1, 256, 4096, 0], 1 << 40, 0),
        (1u64 << 40) as f64 / rate / used * 4136.0 / 4096.0,
    );
    // Half of the rate at a contraction of half_k.
    assert_close(seconds([128 * 132, 256, 40, 0], 1 << 40, 0), (1u64 << 41) as f64 / rate);
    assert_close(
        seconds([1, 16384, 16384, 0], 1 << 29, 1 << 29),
        (1u64 << 29) as f64 / (3.35e12 * 0.83),
    );
    assert_eq!(kernel_seconds(&cluster, KernelOp::Gemm, [0; 4], 0, 0), 4e-6);
}

#[test]
fn attention_is_interpolated() {
    let cluster = h100();
    let rate = |op, keys: u32, head_dim: u32| {
        let flops = 1e15;
        flops / (kernel_seconds(&cluster, op, [keys, keys, 32, head_dim], flops as u64, 0) - 4e-6)
    };
    assert_close(rate(KernelOp::AttentionKernel, 2048, 128), 484e12);
    // Halfway in the logarithm.
    assert_close(rate(KernelOp::AttentionKernel, 4096, 128), 506.5e12);
    assert_close(rate(KernelOp::AttentionKernel, 128, 128), 484e12);
    assert_close(rate(KernelOp::AttentionKernel, 1 << 20, 128), 529e12);
    assert_close(rate(KernelOp::AttentionBackward, 8192, 128), 500e12);
    // The smallest curve that holds the head, else the largest one.
    assert_close(rate(KernelOp::AttentionKernel, 2048, 32), 382e12);
    assert_close(rate(KernelOp::AttentionKernel, 2048, 64), 382e12);
    assert_close(rate(KernelOp::AttentionKernel, 2048, 80), 484e12);
    assert_close(rate(KernelOp::AttentionKernel, 2048, 256), 484e12);
}

#[test]
fn attention_without_a_curve_is_a_fraction_of_matmuls() {
    let mut cluster = h100();
    std::sync::Arc::make_mut(&mut cluster.gpu).attention.clear();
    for (op, fraction) in [(KernelOp::AttentionKernel, 0.6), (KernelOp::AttentionBackward, 0.5)] {
        let seconds = kernel_seconds(&cluster, op, [2048, 2048, 32, 128], 1 << 50, 0);
        assert_close(seconds - 4e-6, (1u64 << 50) as f64 / (989.4e12 * 0.745 * fraction));
    }
}

/// Curves of bf16 are no curves of f32.
#[test]
fn dtypes_have_their_peaks() {
    let dims = [128 * 132, 256, 4096, 128];
    let flops = 1 << 50;
    for (op, factor) in [(KernelOp::Gemm, 4096.0 / 4136.0), (KernelOp::AttentionKernel, 0.6)] {
        let kernel = Kernel { op, dims, dtype: DType::F32, flops, read: 0, written: 0 };
        let cluster = h100();
        let seconds = Times::new(&cluster, &MeshShape::SINGLE).unwrap().of_kernel(&kernel).unwrap();
        assert_close(seconds - 4e-6, flops as f64 / (67e12 * 0.745 * factor));
    }
}

#[test]
fn other_kernels_move_bytes() {
    let cluster = h100();
    let seconds = |op| kernel_seconds(&cluster, op, [0; 4], 0, 1 << 30) - 2e-6;
    let bytes = (1u64 << 30) as f64;
    assert_close(seconds(KernelOp::Map), bytes / (3.35e12 * 0.83));
    assert_close(seconds(KernelOp::RopeKernel), bytes / (3.35e12 * 0.75));
    for op in [KernelOp::CopyIn, KernelOp::CopyOut, KernelOp::Upload, KernelOp::Download] {
        assert_close(seconds(op), bytes / 55e9);
    }
}

fn collective_on(cluster: &Cluster, mesh: &str, op: CommOpKind, axes: AxisSet, bytes: u64) -> f64 {
    let mesh: MeshShape = mesh.parse().unwrap();
    let call = CommCall {
        number: 0,
        op,
        axes,
        group: 0,
        bytes,
        is_asynchronous: false,
        message: None,
        round: None,
        site: 0,
    };
    Times::new(cluster, &mesh).unwrap().of_collective(&call)
}

const FSDP: AxisSet = AxisSet::of(AxisId::Fsdp);
const BYTES: u64 = 4_200_000_000;

#[test]
fn gathers_use_the_links_of_their_group() {
    let cluster = h100();
    let gather = |mesh: &str| collective_on(&cluster, mesh, CommOpKind::AllGather, FSDP, BYTES);
    let sent = BYTES as f64;
    assert_eq!(gather("tp=8"), 0.0);
    assert_close(gather("fsdp=8"), 20e-6 + sent / 361e9);
    // One rank in each of 8 nodes.
    assert_close(gather("fsdp=8,tp=8"), 90e-6 + 2.0 * 60e-6 + sent / 26e9);
    // Eight ranks of a node share the network in a ring over four nodes.
    assert_close(gather("fsdp=32"), 20e-6 + 150e-6 + sent / 8.0 / 26e9);
    assert_close(gather("fsdp=32,tp=2"), 20e-6 + 210e-6 + sent / 4.0 / 26e9);
    // With slower links in the node, levels one after the other are faster than a ring over two nodes.
    let mut slow = unit_cluster(2);
    slow.levels[1] = level("cluster", usize::MAX, 0.1, 0.0);
    let sent = |whole: f64| (whole * 3.0 / 4.0) as u64;
    let seconds = collective_on(&slow, "fsdp=4", CommOpKind::ReduceScatter, FSDP, sent(400.0));
    assert_close(seconds, 200.0 + 100.0 / 0.1);
}

#[test]
fn all_reduces_take_the_fastest_algorithm() {
    let cluster = h100();
    let all_reduce = |mesh: &str, whole: f64| {
        let ranks: f64 = mesh["fsdp=".len()..].split(',').next().unwrap().parse().unwrap();
        let sent = (2.0 * whole * (ranks - 1.0) / ranks).round() as u64;
        collective_on(&cluster, mesh, CommOpKind::AllReduce, FSDP, sent)
    };
    // Reductions by the switch of a node, for more than four ranks.
    assert_close(all_reduce("fsdp=8", 8e9), 20e-6 + 14e9 / 440e9);
    // A ring of four ranks.
    assert_close(all_reduce("fsdp=4", 8e9), 40e-6 + 12e9 / 361e9);
    // A tree has half of the latency.
    assert_close(all_reduce("fsdp=4", 4e6), 20e-6 + 8e6 / 361e9);
    // Over two nodes: a reduce-scatter and a gather in nodes around a ring of their eighths.
    let inside = 2.0 * (20e-6 + 7e9 / 440e9);
    assert_close(all_reduce("fsdp=16", 8e9), inside + 180e-6 + 1e9 / 26e9);
    let mut slow = unit_cluster(2);
    slow.levels[1] = level("cluster", usize::MAX, 0.1, 0.0);
    let seconds = collective_on(&slow, "fsdp=4", CommOpKind::AllReduce, FSDP, 600);
    assert_close(seconds, 2.0 * 200.0 + 200.0 / 0.1);
}

#[test]
fn all_to_alls_share_the_network() {
    let cluster = h100();
    let exchange = |mesh: &str| collective_on(&cluster, mesh, CommOpKind::AllToAll, FSDP, BYTES);
    assert_close(exchange("fsdp=8"), 20e-6 + BYTES as f64 / 361e9);
    // 8 of 15 other ranks are in the other node.
    assert_close(exchange("fsdp=16"), 110e-6 + BYTES as f64 * 8.0 / 15.0 / 26e9);
}

#[test]
fn groups_follow_the_order_of_ranks() {
    let cluster = h100();
    let gather = |mesh: MeshShape| {
        let (op, bytes) = (CommOpKind::AllGather, BYTES);
        let call = CommCall {
            number: 0,
            op,
            axes: FSDP,
            group: 0,
            bytes,
            is_asynchronous: false,
            message: None,
            round: None,
            site: 0,
        };
        Times::new(&cluster, &mesh).unwrap().of_collective(&call)
    };
    let mesh: MeshShape = "fsdp=8,tp=8".parse().unwrap();
    assert_close(gather(mesh), 210e-6 + BYTES as f64 / 26e9);
    let inner = mesh.with_order("tp,fsdp".parse().unwrap()).unwrap();
    assert_close(gather(inner), 20e-6 + BYTES as f64 / 361e9);
    // 12 ranks in nodes of 8: four of them share a node for certain, so these are three groups.
    let latency = 20e-6 + 90e-6 + 60e-6 * 1.5_f64.log2();
    let whole = BYTES as f64 * 12.0 / 11.0;
    let by_levels = 3.0 / 4.0 * whole / 361e9 + 2.0 / 3.0 * whole / 4.0 / 26e9;
    assert_close(gather("fsdp=12".parse().unwrap()), latency + by_levels);
}

#[test]
fn messages_use_the_level_between_positions() {
    let cluster = h100();
    let seconds = |mesh: MeshShape, positions| {
        Times::new(&cluster, &mesh).unwrap().of_message(positions, 1 << 30)
    };
    let bytes = (1u64 << 30) as f64;
    let (inside, between) = (20e-6 + bytes / 361e9, 90e-6 + bytes / 26e9);
    assert_close(seconds("pp=4,tp=8".parse().unwrap(), [0, 1]), between);
    let mesh: MeshShape = "pp=8,tp=2".parse().unwrap();
    assert_close(seconds(mesh, [0, 1]), inside);
    assert_close(seconds(mesh, [4, 3]), between);
    let mesh: MeshShape = "pp=4,dp=8".parse().unwrap();
    let inner = mesh.with_order("dp,pp".parse().unwrap()).unwrap();
    assert_close(seconds(inner, [0, 3]), inside);
}

/// Four ranks on two cores, where two ranks take twice the time of one.
#[test]
fn ranks_share_a_machine() {
    let mut cluster = h100();
    let gpu = std::sync::Arc::make_mut(&mut cluster.gpu);
    let factors = |ranks, compute, memory| {
        let [compute, memory] = [compute, memory].map(figure);
        SharingFactors { ranks, compute, memory }
    };
    (gpu.units, gpu.sharing) = (2, vec![factors(1, 1.0, 1.0), factors(2, 2.0, 1.5)]);
    for (busy, [compute, memory, start]) in [
        (1.0, [4.0, 3.0, 2.0]),
        // Of three others, at most one computes in half of the time, two in 3/8, and three in 1/8.
        (0.5, [2.625, 1.96875, 1.3125]),
        (0.0, [2.0, 1.5, 1.0]),
    ] {
        let mesh = "dp=4".parse().unwrap();
        let mut times = Times::new(&cluster, &mesh).unwrap();
        times.set_busy_fraction(busy);
        let mut seconds = |op, flops, read| {
            let (dims, dtype) = ([128, 256, 4096, 0], DType::Bf16);
            times.of_kernel(&Kernel { op, dims, dtype, flops, read, written: 0 }).unwrap()
        };
        assert_close(seconds(KernelOp::Map, 0, 0), 2e-6 * start);
        assert_close(seconds(KernelOp::Gemm, 0, 0), 4e-6 * start);
        let moved = seconds(KernelOp::Map, 0, 1 << 30) - 2e-6 * start;
        assert_close(moved, (1u64 << 30) as f64 / (3.35e12 * 0.83) * memory);
        let alone = kernel_seconds_alone(&cluster, 1 << 40) - 4e-6;
        assert_close(seconds(KernelOp::Gemm, 1 << 40, 0) - 4e-6 * start, alone * compute);
    }
    let gpu = &cluster.gpu;
    // In the middle of logarithms, and before the first one.
    let sqrt_2 = 2.0_f64.sqrt();
    assert_close(gpu.slowdown(sqrt_2)[0], sqrt_2);
    assert_close(gpu.slowdown(0.5)[0], 1.0);
    assert_close(gpu.memory_of_rank(4), 20e9);
}

/// Returns the seconds of a matmul of one rank.
fn kernel_seconds_alone(cluster: &Cluster, flops: u64) -> f64 {
    kernel_seconds(cluster, KernelOp::Gemm, [128, 256, 4096, 0], flops, 0)
}

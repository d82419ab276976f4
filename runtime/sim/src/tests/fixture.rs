//! Clusters and logs of tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright_backend::{DType, Kernel, KernelOp};
use meshwright_comm::MessageId;
use meshwright_core::__internal::Pass;
use meshwright_mesh::AxisSet;

use crate::cluster::{
    AttentionCurve, Cluster, Figure, Gpu, Level, MatmulCurve, Origin, PassRates, Trust,
};
use crate::{
    CommCall, CommOpKind, Context, ContextId, EventKind, RunningAction, SimOptions,
    SoftwareFactors, StepEvent, StepLog,
};

pub fn figure(value: f64) -> Figure {
    Figure { value, origin: origin() }
}

fn origin() -> Origin {
    Origin { source: "test".into(), trust: Trust::Guess }
}

/// Options without factors of software.
pub fn plain() -> SimOptions {
    let software = SoftwareFactors { interference: 0.0, jitter_per_doubling: 0.0 };
    SimOptions { software, ..SimOptions::default() }
}

/// Nodes of `node` GPUs, and a network, in which a byte takes a second and calls have no latency.
pub fn unit_cluster(node: usize) -> Cluster {
    let one = || figure(1.0);
    let gpu = Gpu {
        name: "unit".into(),
        memory: one(),
        memory_bandwidth: one(),
        host_bandwidth: one(),
        peak: vec![(DType::F32, one())],
        units: 1,
        tile: [1, 1],
        matmul: MatmulCurve {
            efficiency: one(),
            wave_exponent: figure(0.0),
            half_k: figure(0.0),
            start: figure(0.0),
        },
        attention: Vec::new(),
        attention_fraction: [one(), one()],
        passes: PassRates { others: one(), of: BTreeMap::new(), start: figure(0.0) },
        launch: [figure(0.0), figure(0.0)],
        sharing: Vec::new(),
    };
    let levels = vec![level("node", node, 1.0, 0.0), level("cluster", usize::MAX, 1.0, 0.0)];
    cluster(gpu, levels)
}

/// Nodes of 8 H100 with 400 Gbit/s each, with rounded figures of measurements.
pub fn h100() -> Cluster {
    let gpu = Gpu {
        name: "h100".into(),
        memory: figure(80e9),
        memory_bandwidth: figure(3.35e12),
        host_bandwidth: figure(55e9),
        peak: vec![(DType::Bf16, figure(989.4e12)), (DType::F32, figure(67e12))],
        units: 132,
        tile: [128, 256],
        matmul: MatmulCurve {
            efficiency: figure(0.745),
            wave_exponent: figure(0.25),
            half_k: figure(40.0),
            start: figure(4e-6),
        },
        attention: vec![
            attention(128, false, &[(2048, 484e12), (8192, 529e12)]),
            attention(128, true, &[(2048, 350e12), (8192, 500e12)]),
            attention(64, false, &[(2048, 382e12), (8192, 473e12)]),
        ],
        attention_fraction: [figure(0.6), figure(0.5)],
        passes: PassRates {
            others: figure(0.83),
            of: BTreeMap::from([(KernelOp::RopeKernel, figure(0.75))]),
            start: figure(2e-6),
        },
        launch: [figure(2.5e-6), figure(0.3e-6)],
        sharing: Vec::new(),
    };
    let mut node = level("node", 8, 361e9, 20e-6);
    node.all_reduce_bandwidth = Some(figure(440e9));
    let mut network = level("cluster", usize::MAX, 26e9, 90e-6);
    network.latency_per_doubling = figure(60e-6);
    cluster(gpu, vec![node, network])
}

pub fn level(name: &str, size: usize, bandwidth: f64, latency: f64) -> Level {
    Level {
        name: name.into(),
        size,
        bandwidth: figure(bandwidth),
        collective_bandwidth: figure(bandwidth),
        all_reduce_bandwidth: None,
        message_bandwidth: figure(bandwidth),
        latency: figure(latency),
        latency_per_doubling: figure(0.0),
    }
}

fn cluster(gpu: Gpu, levels: Vec<Level>) -> Cluster {
    let (name, description) = (gpu.name.clone(), String::new());
    Cluster { name, description, gpu: Arc::new(gpu), levels, gpus: None }
}

fn attention(head_dim: usize, is_backward: bool, rates: &[(usize, f64)]) -> AttentionCurve {
    let (dtype, rates) = (DType::Bf16, rates.to_vec());
    AttentionCurve { head_dim, dtype, is_backward, rates, origin: origin() }
}

/// A log that is written event by event. On a [`unit_cluster`], a kernel of `n` bytes takes `n` seconds.
pub struct LogWriter {
    log: StepLog,
    calls: u32,
}

impl LogWriter {
    pub fn new() -> LogWriter {
        let mut writer = LogWriter { log: StepLog::default(), calls: 0 };
        writer.begin(Pass::Forward, "", None);
        writer
    }

    /// Begins the context of the next events.
    pub fn begin(&mut self, pass: Pass, layer: &str, action: Option<RunningAction>) {
        self.log.contexts.push(Context { pass, action, layer: layer.into(), function: "" });
    }

    pub fn event(&mut self, kind: EventKind) -> usize {
        let context = ContextId(self.log.contexts.len() as u32 - 1);
        self.log.events.push(StepEvent { context, kind });
        self.log.events.len() - 1
    }

    /// Adds an operation on `bytes` bytes.
    pub fn kernel(&mut self, op: KernelOp, bytes: u64) {
        let dims = [bytes as u32, 0, 0, 0];
        let kernel = Kernel { op, dims, dtype: DType::F32, flops: 0, read: 0, written: bytes };
        self.event(EventKind::Kernel(kernel));
    }

    pub fn map(&mut self, bytes: u64) {
        self.kernel(KernelOp::Map, bytes);
    }

    /// Adds a call, and returns its number.
    fn call(&mut self, call: CommCall) -> u32 {
        self.calls += 1;
        self.event(EventKind::Call(CommCall { number: self.calls - 1, ..call }));
        self.calls - 1
    }

    /// Adds a collective that the rank waits for immediately.
    pub fn blocking(&mut self, op: CommOpKind, axes: AxisSet, bytes: u64) -> u32 {
        self.call(collective(op, axes, bytes))
    }

    /// Adds a collective that the rank waits for later, and returns its number.
    pub fn start(&mut self, op: CommOpKind, axes: AxisSet, bytes: u64) -> u32 {
        self.call(CommCall { is_asynchronous: true, ..collective(op, axes, bytes) })
    }

    /// Adds one end of a message.
    pub fn message(&mut self, op: CommOpKind, message: MessageId, bytes: u64) -> u32 {
        let call = collective(op, AxisSet::ALL, bytes);
        let message = Some(self.add_message(message));
        self.call(CommCall { is_asynchronous: true, message, ..call })
    }

    /// Adds one end of a message without bytes, which may be part of a round.
    pub fn round_message(&mut self, op: CommOpKind, message: MessageId, round: Option<u32>) -> u32 {
        let call = collective(op, AxisSet::ALL, 0);
        let message = Some(self.add_message(message));
        self.call(CommCall { is_asynchronous: true, message, round, ..call })
    }

    fn add_message(&mut self, message: MessageId) -> u32 {
        self.log.messages.push(message);
        self.log.messages.len() as u32 - 1
    }

    pub fn wait(&mut self, number: u32) {
        self.event(EventKind::Await { number, of_previous_step: false });
    }

    pub fn wait_for_previous_step(&mut self, number: u32) {
        self.event(EventKind::Await { number, of_previous_step: true });
    }

    pub fn finish(self) -> Arc<StepLog> {
        Arc::new(self.log)
    }
}

fn collective(op: CommOpKind, axes: AxisSet, bytes: u64) -> CommCall {
    CommCall {
        number: 0,
        op,
        axes,
        group: 0,
        bytes,
        is_asynchronous: false,
        message: None,
        round: None,
        site: 0,
    }
}

/// The message of a micro-batch from one stage to the next one.
pub fn message(from_stage: usize, micro_batch: usize) -> MessageId {
    MessageId { kind: "activation", from_stage, to_stage: from_stage + 1, micro_batch, part: 0 }
}

/// A small generator of numbers (SplitMix64, Steele et al. 2014).
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Returns a number from `low` to `high`, evenly distributed in the logarithm.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let part = self.below(1 << 32) as f64 / (1u64 << 32) as f64;
        low * (high / low).powf(part)
    }
}

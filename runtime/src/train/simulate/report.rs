//! The result of a simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::backend::{Category, KernelOp};
use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::train::config::Config;
use crate::train::plan::Plan;
use crate::train::{Error, Result, Task};
use meshwright_comm::__internal::axes_name;
use meshwright_sim::cluster::{Cluster, SizedCluster};
use meshwright_sim::{
    AxisTraffic, Computation, EventKind, Pass, SimOptions, SimSpan, SimulatedStep, StepLog,
    StepWork, simulate, traffic,
};

use super::course::StepCourse;

/// A simulated run: a step on all GPUs of a described cluster, and what follows for the whole run.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct SimulatedRun {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of its GPUs.
    pub gpu: String,
    /// Number of GPUs.
    pub gpus: usize,
    /// The mesh.
    pub mesh: String,
    /// Seconds of a step.
    pub step_s: f64,
    /// Relative uncertainty of all times, from the trust in the rates of the cluster.
    pub uncertainty: f64,
    /// Tokens of a step.
    pub step_tokens: f64,
    /// Tokens per second of all GPUs.
    pub tokens_per_s: f64,
    /// Model FLOPs utilization, as if every token attended to all others.
    pub mfu: f64,
    /// Model FLOPs utilization that counts visible pairs of tokens only.
    pub mfu_causal: f64,
    /// Hardware FLOPs utilization.
    pub hfu: f64,
    /// Fraction of the step in which GPUs wait for other positions along `pp`, or are done.
    pub bubble: f64,
    /// Seconds of a step by use: kinds of kernels, `exposed` communication by axes, and waits. The mean over positions
    /// along `pp`.
    pub time_s: BTreeMap<String, f64>,
    /// Bytes that a GPU sends in a step over each set of axes, the most first.
    pub links: Vec<LinkUse>,
    /// The compute dtype.
    pub dtype: &'static str,
    /// Bytes of memory that the fullest rank needs.
    pub memory_bytes: u64,
    /// The peaks of that rank by category.
    pub memory_by_category: BTreeMap<&'static str, u64>,
    /// Bytes of memory of a GPU.
    pub gpu_memory_bytes: u64,
    /// Tokens of the whole run, its days and its GPU-hours without interruptions, if `--tokens` is given.
    pub run: Option<WholeRun>,
    /// Memory, kernels and timeline, for a report.
    #[serde(flatten)]
    pub(in crate::train) course: Option<StepCourse>,
    #[serde(skip)]
    pub(in crate::train) spans: Vec<SimSpan>,
}

/// The communication of a step over one set of axes.
#[derive(Debug, Clone, Serialize)]
pub struct LinkUse {
    /// The axes.
    pub axes: String,
    /// Bytes that a GPU sends in a step, as the mean over positions along `pp`.
    pub sent_bytes: f64,
    /// Levels of the network that connect the ranks of a group, the innermost first.
    pub levels: Vec<String>,
}

/// A whole run without interruptions.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct WholeRun {
    /// Tokens.
    pub tokens: f64,
    /// Days.
    pub days: f64,
    /// Hours times GPUs.
    pub gpu_hours: f64,
}

impl SimulatedRun {
    /// Simulates a step of a planned run on the GPUs that `on` names, from the logs of its dry run. `follows_course` is
    /// for reports and traces.
    ///
    /// # Errors
    /// Of the dry run, and a cluster that cannot run the step: see [`simulate`].
    pub fn of_plan<T: Task>(
        plan: &Plan,
        on: &SizedCluster,
        follows_course: bool,
    ) -> Result<SimulatedRun> {
        let logs = plan.step_logs::<T>()?;
        let Config { mesh, graphs, .. } = plan.config;
        let options =
            SimOptions { cuda_graphs: graphs, spans: follows_course, ..SimOptions::default() };
        let of_flag = |error: &dyn std::fmt::Display| Error::Input(format!("--simulate: {error}"));
        let step =
            simulate(&on.cluster, &mesh, &logs, &options).map_err(|error| of_flag(&error))?;
        let gpu = &on.cluster.gpu;
        let peak = gpu.peak_of(plan.config.dtype.dtype()).map_err(|error| of_flag(&error))?;
        let devices = if gpu.is_shared() { on.gpus as f64 } else { 1.0 };
        let work = work_of(plan, &logs, peak.value / devices);
        let utilization = work.utilization(step.seconds);
        let run = plan.config.tokens.map(|tokens| {
            let duration = utilization.duration(tokens);
            WholeRun { tokens, days: duration.days, gpu_hours: duration.gpu_hours }
        });
        let peaks = Category::ALL.map(|category| (category.name(), plan.memory.peak_of(category)));
        Ok(SimulatedRun {
            cluster: on.cluster.name.clone(),
            gpu: gpu.name.clone(),
            gpus: on.gpus,
            mesh: mesh.to_string(),
            step_s: step.seconds,
            uncertainty: on.cluster.uncertainty(on.gpus > on.cluster.node()),
            step_tokens: work.tokens,
            tokens_per_s: utilization.tokens_per_second,
            mfu: utilization.mfu_full,
            mfu_causal: utilization.mfu_causal,
            hfu: utilization.hfu,
            bubble: step.bubble(),
            time_s: times_of(&step),
            links: links_of(&on.cluster, &mesh, &logs),
            dtype: plan.config.dtype.dtype().name(),
            memory_bytes: plan.memory.total(),
            memory_by_category: peaks.into_iter().filter(|(_, bytes)| *bytes > 0).collect(),
            gpu_memory_bytes: gpu.memory_of_rank(on.gpus) as u64,
            run,
            course: follows_course.then(|| StepCourse::new(&logs, &step.spans, step.seconds)),
            spans: step.spans,
        })
    }

    /// True if the fullest rank needs no more memory than a GPU has.
    pub fn fits(&self) -> bool {
        self.memory_bytes <= self.gpu_memory_bytes
    }
}

/// Returns the work of a step on GPUs with a peak of `peak` FLOP/s.
fn work_of(plan: &Plan, logs: &[Arc<StepLog>], peak: f64) -> StepWork {
    let Config { batch, seq, mesh, .. } = plan.config;
    let gpus = mesh.world_size();
    let ranks_each = (gpus / mesh.degree(AxisId::Pp)) as f64;
    let of_all_ranks = |of_log: &dyn Fn(&StepLog) -> u64| -> f64 {
        logs.iter().map(|log| of_log(log) as f64).sum::<f64>() * ranks_each
    };
    let tokens = (batch * seq) as f64;
    // Two more matmuls in backward for each of the forward pass.
    let visible = 3.0 * of_all_ranks(&forward_attention);
    StepWork {
        tokens,
        model_flops_full: tokens * (plan.flops.parameters + plan.flops.attention),
        model_flops_causal: tokens * plan.flops.parameters + visible,
        hardware_flops: of_all_ranks(&|log| log.flops(|_| true)),
        gpus,
        peak,
    }
}

/// Returns the FLOPs of attention in the forward pass, which count visible pairs.
fn forward_attention(log: &StepLog) -> u64 {
    let flops = log.events.iter().map(|event| match event.kind {
        EventKind::Kernel(kernel)
            if kernel.op == KernelOp::AttentionKernel
                && log.context(&event).pass == Pass::Forward =>
        {
            kernel.flops
        }
        _ => 0,
    });
    flops.sum()
}

fn links_of(cluster: &Cluster, mesh: &MeshShape, logs: &[Arc<StepLog>]) -> Vec<LinkUse> {
    let uses = traffic(cluster, mesh, logs).into_iter();
    uses.map(|AxisTraffic { axes, bytes, levels }| LinkUse {
        axes: axes_name(axes),
        sent_bytes: bytes,
        levels,
    })
    .collect()
}

/// Returns the seconds of a step by use, without uses that take no time.
fn times_of(step: &SimulatedStep) -> BTreeMap<String, f64> {
    let mean = step.mean_position();
    let computation = Computation::ALL.map(|kind| (kind.name().to_owned(), mean.computation(kind)));
    let exposed = mean
        .exposed
        .iter()
        .map(|(axes, seconds)| (format!("exposed {}", axes_name(*axes)), *seconds));
    let waits = [
        ("bubble".to_owned(), mean.waiting + mean.end_idle),
        ("transfers".to_owned(), mean.transfers),
        ("launches".to_owned(), mean.launches),
    ];
    let all = computation.into_iter().chain(exposed).chain(waits);
    all.filter(|(_, seconds)| *seconds > 0.0).collect()
}

//! Times of the collectives over the axes that share tokens: gradients and parameters.

use std::collections::HashMap;
use std::sync::Arc;

use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::tensor::ZeroStage;
use crate::train::{Error, Result};
use meshwright_sim::cluster::Cluster;
use meshwright_sim::{
    CommCall, CommOpKind, Context, ContextId, EventKind, Pass, SimOptions, StepEvent, StepLog,
    simulate,
};

/// Bytes of an element of a gradient in its reduction.
const GRADIENT: f64 = 4.0;
/// Bytes of an element of a gathered parameter.
const PARAMETER: f64 = 2.0;

/// Seconds of one collective of a mesh on a cluster, replayed alone.
pub struct Collectives<'a> {
    cluster: &'a Cluster,
    known: HashMap<(MeshShape, CommOpKind, AxisSet, u64), f64>,
}

/// Seconds of the collectives of all parameters of a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataTimes {
    /// Reduce-scatters of gradients, once.
    pub reduction: f64,
    /// All-reduces over the ranks that replicate a shard, once.
    pub replicas: f64,
    /// All-gathers of parameters, once.
    pub gather: f64,
}

impl<'a> Collectives<'a> {
    pub fn new(cluster: &'a Cluster) -> Collectives<'a> {
        Collectives { cluster, known: HashMap::new() }
    }

    /// Returns the times of `elements` parameters of a rank, in `units` FSDP units.
    ///
    /// # Errors
    /// A cluster that is too small for the mesh.
    pub fn of_parameters(
        &mut self,
        mesh: &MeshShape,
        zero: ZeroStage,
        elements: f64,
        units: f64,
    ) -> Result<DataTimes> {
        let is_sharded = zero > ZeroStage::Replicated;
        let shared = if is_sharded { AxisSet::ZERO } else { AxisSet::NONE };
        let rest = AxisSet::TOKENS.difference(shared);
        let shards = mesh.degree_of(shared) as f64;
        let elements = elements / units;
        let sent = |ranks: f64| (ranks - 1.0) / ranks;
        let mut of = |op, axes, bytes: f64| self.seconds(mesh, op, axes, bytes as u64);
        let gradients = GRADIENT * elements;
        let reduction = of(CommOpKind::ReduceScatter, shared, gradients * sent(shards))?;
        let ranks = mesh.degree_of(rest) as f64;
        let replicas = of(CommOpKind::AllReduce, rest, 2.0 * gradients / shards * sent(ranks))?;
        let gather = of(CommOpKind::AllGather, shared, PARAMETER * elements * sent(shards))?;
        let [reduction, replicas, gather] =
            [reduction, replicas, gather].map(|seconds| seconds * units);
        Ok(DataTimes { reduction, replicas, gather })
    }

    fn seconds(
        &mut self,
        mesh: &MeshShape,
        op: CommOpKind,
        axes: AxisSet,
        bytes: u64,
    ) -> Result<f64> {
        let axes = axes.iter().filter(|axis| mesh.degree(*axis) > 1);
        let axes = axes.fold(AxisSet::NONE, |set, axis| set.union(AxisSet::of(axis)));
        if axes.is_empty() || bytes == 0 {
            return Ok(0.0);
        }
        let key = (*mesh, op, axes, bytes);
        if let Some(seconds) = self.known.get(&key) {
            return Ok(*seconds);
        }
        // The one position of a mesh without its outermost axis has the same groups.
        let one = mesh.with_axes(AxisSet::ALL.difference(AxisSet::of(AxisId::Pp)));
        let log = [Arc::new(log_of(op, axes, one.degree_of(axes), bytes))];
        let step = simulate(self.cluster, &one, &log, &SimOptions::default())
            .map_err(|error| Error::Input(format!("--plan: {error}")))?;
        self.known.insert(key, step.seconds);
        Ok(step.seconds)
    }
}

/// Returns the log of one collective.
fn log_of(op: CommOpKind, axes: AxisSet, group: usize, bytes: u64) -> StepLog {
    let call = CommCall {
        number: 0,
        op,
        axes,
        group: group as u32,
        bytes,
        is_asynchronous: false,
        message: None,
        round: None,
        site: 0,
    };
    let context = Context { pass: Pass::Update, action: None, layer: "".into(), function: "" };
    StepLog {
        contexts: vec![context],
        events: [StepEvent { context: ContextId(0), kind: EventKind::Call(call) }]
            .into_iter()
            .collect(),
        ..StepLog::default()
    }
}

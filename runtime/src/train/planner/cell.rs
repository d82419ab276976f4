//! Cells: times and bytes of one layer, by differences of small dry runs.
//!
//! A step is linear in its layers and its micro-batches. So four dry runs, of one and two layers and of one and two
//! micro-batches, which are replayed on the cluster, give what a layer and the ends of a model add. No formula of a
//! layer is needed.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::backend::Category;
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::nn::{Layers, RecomputeOverride};
use crate::tensor::ZeroStage;
use crate::train::config::{Config, RunSettings};
use crate::train::plan::{ModelPlan, OpenedModel};
use crate::train::{Error, Family, FamilyModel, Result, Task};
use meshwright_sim::cluster::SizedCluster;
use meshwright_sim::{SimOptions, simulate};

use super::candidate::Candidate;

/// Memory of a rank of a cell, in GPUs: it also holds the state, which no rank shares there.
const CELL_MEMORY: f64 = 8.0;

/// The settings that the candidates of one cell have in common: the axes within a layer, the tokens of a micro-batch,
/// and the recomputation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellKey {
    /// The mesh along `tp`, `cp` and `ep` only.
    pub mesh: MeshShape,
    /// Sequences of a micro-batch.
    pub rows: usize,
    pub recompute: RecomputeOverride,
}

/// Times and bytes of a micro-batch, with the exposed communication over `tp`, `cp` and `ep`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Seconds of a layer, forward and backward.
    pub layer: f64,
    /// Seconds of everything else: embedding, head and loss.
    pub ends: f64,
    /// Bytes that a layer keeps of a micro-batch for its backward pass.
    pub kept: f64,
    /// Other bytes at the peak.
    pub transient: f64,
    /// Elements of the parameters of a layer on a rank.
    pub layer_elements: f64,
    /// Elements of all other parameters on a rank.
    pub end_elements: f64,
}

impl Hash for CellKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.mesh, self.rows).hash(hasher);
    }
}

impl CellKey {
    /// Returns the key of candidates on `mesh`.
    pub fn new(mesh: &MeshShape, rows: usize, recompute: RecomputeOverride) -> CellKey {
        let inner = [AxisId::Tp, AxisId::Cp, AxisId::Ep].map(AxisSet::of);
        let inner = inner.into_iter().fold(AxisSet::NONE, AxisSet::union);
        CellKey { mesh: mesh.with_axes(inner), rows, recompute }
    }

    /// Returns the key with one rank along `cp`.
    pub fn without_cp(&self) -> CellKey {
        let others = AxisSet::ALL.difference(AxisSet::of(AxisId::Cp));
        CellKey { mesh: self.mesh.with_axes(others), ..*self }
    }

    /// Measures the cell of a model on the GPUs of `on`.
    ///
    /// # Errors
    /// Sizes that do not fit the mesh, and of the dry runs.
    pub fn measure<T: Task>(
        &self,
        settings: &RunSettings,
        model: &OpenedModel<T>,
        on: &SizedCluster,
    ) -> Result<Cell> {
        let run =
            |layers, micro_batches| self.dry_run::<T>(settings, model, on, layers, micro_batches);
        let [one, one_more] = [run(1, 1)?, run(1, 2)?];
        let [two, two_more] = [run(2, 1)?, run(2, 2)?];
        let pass = one_more.seconds - one.seconds;
        let layer = two_more.seconds - two.seconds - pass;
        let kept = two.activations - one.activations;
        let layer_elements = two.elements - one.elements;
        Ok(Cell {
            layer,
            ends: (pass - layer).max(0.0),
            kept,
            transient: (one.activations - kept).max(0.0),
            layer_elements,
            end_elements: one.elements - layer_elements,
        })
    }

    /// Returns the settings of a small run of this cell.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn config(
        &self,
        settings: &RunSettings,
        on: &SizedCluster,
        micro_batches: usize,
    ) -> Result<Config> {
        let (mesh, recompute) = (self.mesh, self.recompute);
        let zero = ZeroStage::Replicated;
        let (schedule, is_eager) = (None, settings.no_graphs);
        let candidate = Candidate { mesh, zero, schedule, micro_batches, recompute, is_eager };
        let on = SizedCluster { cluster: Arc::clone(&on.cluster), gpus: mesh.world_size() };
        let mut settings = candidate.settings(settings, &on).without_pipeline();
        settings.batch = self.rows * micro_batches * mesh.degree_of(AxisSet::DATA);
        if mesh.degree(AxisId::Cp) == 1 {
            settings.cp = None;
        }
        Ok(settings.resolve()?)
    }

    fn dry_run<T: Task>(
        &self,
        settings: &RunSettings,
        model: &OpenedModel<T>,
        on: &SizedCluster,
        layers: usize,
        micro_batches: usize,
    ) -> Result<SmallRun> {
        let mesh = self.mesh;
        let on = SizedCluster { cluster: Arc::clone(&on.cluster), gpus: mesh.world_size() };
        let config = self.config(settings, &on, micro_batches)?;
        let (outline, task) = (model.family.outline(), &model.task);
        let mut sizes = T::Model::dim_sizes(&model.family);
        if sizes.get::<Layers>().is_some() {
            sizes = sizes.truncated_to(layers);
        }
        let memory = CELL_MEMORY * on.cluster.gpu.memory.value * on.gpus as f64;
        let plan = ModelPlan::of_sizes::<T>(&config, task, outline, sizes, None, Some(memory))?;
        let logs = plan.memory.logs();
        let options = SimOptions { cuda_graphs: config.graphs, ..SimOptions::default() };
        let step = simulate(&on.cluster, &mesh, logs, &options)
            .map_err(|error| Error::Input(format!("--plan: {error}")))?;
        let at_start = |category: Category| {
            let bytes = logs.iter().map(|log| log.live_at_start[category as usize]).max();
            bytes.unwrap_or(0) as f64
        };
        let state = [Category::Parameters, Category::Gradients, Category::Optimizer].map(at_start);
        Ok(SmallRun {
            seconds: step.seconds,
            activations: plan.memory.total() as f64 - state.iter().sum::<f64>(),
            elements: state[0] / config.dtype.dtype().bytes() as f64,
        })
    }
}

/// A small dry run, replayed.
struct SmallRun {
    seconds: f64,
    /// Bytes at the peak, without parameters, gradients and optimizer state.
    activations: f64,
    /// Elements of the parameters of a rank.
    elements: f64,
}

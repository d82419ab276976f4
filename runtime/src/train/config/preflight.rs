//! `--preflight`: settings of runs that are compared with each other, and write nothing.

use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::parity::observed_mesh;
use crate::tensor::ZeroStage;

use super::{Config, Decay, DeviceChoice, LrSchedule, OutputForm, Precision};

impl Config {
    /// Returns true if the run prints a result, and writes no files: `--explain` and `--preflight`.
    pub fn writes_nothing(&self) -> bool {
        self.is_dry_run() || self.preflight.is_some()
    }

    /// Returns true if a simulated step is shown in more than a few lines: by `--report`, `--trace` or `--out json`.
    pub(in crate::train) fn follows_course(&self) -> bool {
        self.report.is_some() || self.trace.is_some() || self.out == Some(OutputForm::Json)
    }

    /// Returns true if the run writes the metrics of each step.
    pub(in crate::train) fn has_metrics(&self) -> bool {
        self.metrics.is_some() || self.tensorboard.is_some() || self.prometheus.is_some()
    }

    /// Returns the settings of the runs that `--preflight` compares, if it is given: ranks are threads on the CPU,
    /// numbers are f32, and all steps have the peak learning rate, since the updates of a warm-up are too small to be
    /// compared. The mesh is that of the comparison which a process was started to observe.
    pub fn for_preflight(self) -> Config {
        let Some(steps) = self.preflight else { return self };
        let mut config = self;
        config.steps = steps;
        config.device = DeviceChoice::Cpu;
        config.graphs = false;
        config.nondeterministic = false;
        (config.dtype, config.reduce_dtype) = (Precision::F32, Precision::F32);
        (config.grad_dtype, config.state_dtype) = (Precision::F32, Precision::F32);
        let lr = config.optimizer.lr;
        config.optimizer.lr = LrSchedule { decay: Decay::Constant, warmup: 0, steps, ..lr };
        (config.save, config.validation, config.sample_tokens) = (None, None, 0);
        match observed_mesh() {
            Some(mesh) => config.on_mesh(mesh),
            None => config,
        }
    }

    /// Returns the settings of a run on some axes of this mesh, or on one rank, which compute the same step.
    pub fn on_mesh(&self, mesh: MeshShape) -> Config {
        let mut config = self.clone();
        config.mesh = mesh;
        // That of a rank of the whole mesh.
        config.memory_limit = None;
        if mesh.degree_of(AxisSet::ZERO) == 1 {
            config.zero = ZeroStage::Replicated;
        }
        if mesh.degree(AxisId::Pp) == 1 {
            config.pipeline = None;
        }
        if mesh.degree(AxisId::Cp) == 1 {
            config.context = None;
        }
        config
    }
}

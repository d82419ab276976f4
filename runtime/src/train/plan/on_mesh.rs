//! The plan of the same run on another mesh.

use std::sync::Arc;

use crate::checkpoint::RunHistory;
use crate::mesh::MeshShape;
use crate::train::machine::open_machine;
use crate::train::{Result, Task};

use super::checks::{check_batch, check_context, check_threads};
use super::model_plan::ModelPlan;
use super::{OpenedModel, Plan};

impl Plan {
    /// Plans the same steps of a new run on some axes of the mesh, or on one rank, on the machine of `--device`.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn on_mesh<T: Task>(&self, mesh: MeshShape) -> Result<Plan> {
        let config = self.config.on_mesh(mesh);
        let machine = open_machine(&config)?;
        check_threads(&config)?;
        check_batch(&config)?;
        check_context::<T>(&config)?;
        let opened = OpenedModel::<T>::open(&config)?;
        let model = ModelPlan::new::<T>(&config, &opened, machine.memory())?;
        let OpenedModel { task, weights, .. } = opened;
        let ModelPlan { outline, sizes, pipeline, memory, flops, .. } = model;
        Ok(Plan {
            config,
            task,
            machine: Arc::from(machine),
            outline,
            architecture: self.architecture.clone(),
            sizes,
            pipeline,
            hf_names: self.hf_names.clone(),
            export: None,
            parameters: self.parameters,
            memory,
            flops,
            weights,
            resume: None,
            history: RunHistory::begin(None),
            dataset: Arc::clone(&self.dataset),
            validation: None,
            tokenizer: None,
        })
    }
}

//! The configuration of the model to train, and its weights.

use std::path::Path;

use crate::checkpoint::hf::{ConfigFile, HfFolder};
use crate::train::config::{Config, ModelSource};
use crate::train::task::{AnyTask, ConfigOf};
use crate::train::{Error, Family, Result, Task};

/// The task of a run, the configuration of its model, and the folder of its weights if it is not new.
pub struct OpenedModel<T: Task> {
    pub task: AnyTask,
    pub family: ConfigOf<T>,
    pub weights: Option<HfFolder>,
    /// Warnings about the files, for the user.
    pub warnings: Vec<String>,
}

impl<T: Task> OpenedModel<T> {
    /// Opens the files of the model, and the task.
    ///
    /// # Errors
    /// Files that cannot be read or are of another family, and sizes that do not fit together.
    pub fn open(config: &Config) -> Result<OpenedModel<T>> {
        let OpenedFiles { mut family, weights, warnings } =
            OpenedFiles::<ConfigOf<T>>::open(config)?;
        family.set_balancing(config.balance, config.z_loss).map_err(Error::Input)?;
        let task = AnyTask::open::<T>(config, &mut family)?;
        Ok(OpenedModel { task, family, weights, warnings })
    }

    /// Returns the same model, which begins with new weights.
    pub fn without_weights(self) -> OpenedModel<T> {
        OpenedModel { weights: None, ..self }
    }
}

/// The configuration of a model, and its weights.
struct OpenedFiles<F> {
    family: F,
    weights: Option<HfFolder>,
    warnings: Vec<String>,
}

impl<F: Family> OpenedFiles<F> {
    fn open(config: &Config) -> Result<OpenedFiles<F>> {
        Ok(match &config.model {
            ModelSource::InitFrom(folder) => {
                let flag = "--init-from";
                let opened = HfFolder::open::<F>(folder, &config.accept_keys);
                let (family, weights) = opened.map_err(Error::of_flag(flag))?;
                let warnings = weights.warnings().to_vec();
                OpenedFiles { family, weights: Some(weights), warnings }.with_source(flag, folder)
            }
            ModelSource::Architecture(path) => {
                let flag = "--architecture";
                let file = F::read_architecture(path, &config.accept_keys);
                let ConfigFile { config: family, warnings, .. } =
                    file.map_err(Error::of_flag(flag))?;
                OpenedFiles { family, weights: None, warnings }.with_source(flag, path)
            }
            ModelSource::New(sizes) => {
                let model_type = model_type::<F>(config.family.as_deref())?;
                let family = F::new_model(model_type, sizes, config.seq).map_err(Error::Input)?;
                OpenedFiles { family, weights: None, warnings: Vec::new() }
            }
        })
    }

    /// Puts the source in front of all warnings.
    fn with_source(mut self, flag: &str, path: &Path) -> OpenedFiles<F> {
        for warning in &mut self.warnings {
            *warning = format!("{flag} {}: {warning}", path.display());
        }
        self
    }
}

/// Returns the family of a new model: that of `--family`, or the first one.
fn model_type<F: Family>(given: Option<&str>) -> Result<&'static str> {
    let known = F::MODEL_TYPES;
    let Some(given) = given else { return Ok(known[0]) };
    let found = known.iter().find(|known| **known == given);
    found.copied().ok_or_else(|| {
        Error::Input(format!(
            "--family: \"{given}\" is not trained by this program, which trains {}; the program `train` takes each \
             family of this library",
            known.join(", ")
        ))
    })
}

//! The configuration of the model to train, and its weights.

use std::path::Path;

use crate::checkpoint::hf::{ConfigFile, HfFolder};
use crate::train::config::{Config, ModelSource};
use crate::train::{Error, Family, Result};

/// The configuration of the model to train, and the folder of its weights if it is not new.
pub struct OpenedModel<F> {
    pub family: F,
    pub weights: Option<HfFolder>,
    /// Warnings about the files, for the user.
    pub warnings: Vec<String>,
}

impl<F: Family> OpenedModel<F> {
    /// Opens the files of the model.
    ///
    /// # Errors
    /// Files that cannot be read or are of another family, and sizes that do not fit together.
    pub fn open(config: &Config) -> Result<OpenedModel<F>> {
        let mut opened = match &config.model {
            ModelSource::InitFrom(folder) => {
                let flag = "--init-from";
                let opened = HfFolder::open::<F>(folder, &config.accept_keys);
                let (family, weights) = opened.map_err(Error::of_flag(flag))?;
                let warnings = weights.warnings().to_vec();
                OpenedModel { family, weights: Some(weights), warnings }.with_source(flag, folder)
            }
            ModelSource::Architecture(path) => {
                let flag = "--architecture";
                let file = F::read_architecture(path, &config.accept_keys);
                let ConfigFile { config: family, warnings, .. } =
                    file.map_err(Error::of_flag(flag))?;
                OpenedModel { family, weights: None, warnings }.with_source(flag, path)
            }
            ModelSource::New(sizes) => {
                let model_type = model_type::<F>(config.family.as_deref())?;
                let family = F::new_model(model_type, sizes, config.seq).map_err(Error::Input)?;
                OpenedModel { family, weights: None, warnings: Vec::new() }
            }
        };
        opened.family.set_balancing(config.balance, config.z_loss).map_err(Error::Input)?;
        Ok(opened)
    }

    /// Puts the source in front of all warnings.
    fn with_source(mut self, flag: &str, path: &Path) -> OpenedModel<F> {
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

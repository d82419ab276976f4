//! Settings as given, for which a mesh may still have to be chosen.

use std::ffi::OsString;

use crate::mesh::MeshShape;

use super::given::{GivenMap, read_settings};
use super::given_value::GivenValue;
use super::resolve::resolve_config;
use super::{Config, ConfigError, DeviceChoice, Optimizers, Problem, SettingSource};

/// The settings of a command line and its `--config` file, not yet checked.
#[derive(Debug, Clone)]
pub struct GivenSettings {
    given: GivenMap,
    optimizers: Optimizers,
}

/// A request to choose the mesh: `--mesh auto=8`, or `--mesh auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoMesh {
    /// Number of ranks; `None` for as many as there are GPUs.
    pub ranks: Option<usize>,
    /// The device of the ranks.
    pub device: DeviceChoice,
}

impl GivenSettings {
    /// Reads a command line whose first word is the name of the program, and the file that it names.
    ///
    /// # Errors
    /// As [`Config::parse_with`], for settings that cannot be read at all.
    pub fn read(
        args: impl IntoIterator<Item = OsString>,
        optimizers: &Optimizers,
    ) -> Result<GivenSettings, ConfigError> {
        Ok(GivenSettings {
            given: read_settings(args, optimizers)?,
            optimizers: optimizers.clone(),
        })
    }

    /// Returns the request to choose a mesh, if `--mesh` is one.
    ///
    /// # Errors
    /// A number of ranks that is not one.
    pub fn auto_mesh(&self) -> Result<Option<AutoMesh>, ConfigError> {
        let Some(mesh) = self.given.get("mesh") else { return Ok(None) };
        let text = mesh.text.to_string_lossy();
        let Some(rest) = text.trim().strip_prefix("auto") else { return Ok(None) };
        let device = match self.given.get("device").map(|given| given.text.to_string_lossy()) {
            Some(device) if device.trim() == "cuda" => DeviceChoice::Cuda,
            _ => DeviceChoice::Cpu,
        };
        let rest = rest.trim();
        let ranks = match rest.strip_prefix('=').map(|ranks| ranks.trim().parse()) {
            None if rest.is_empty() => None,
            Some(Ok(ranks @ 1..)) => Some(ranks),
            _ => {
                let message = format!(
                    "--mesh: `{text}` is not a number of ranks; write for example `auto=8`"
                );
                let source = Some(mesh.source.clone());
                return Err(ConfigError::Invalid(vec![Problem { source, message }]));
            }
        };
        Ok(Some(AutoMesh { ranks, device }))
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// As [`Config::parse_with`].
    pub fn resolve(self) -> Result<Config, ConfigError> {
        resolve_config(self.given, &self.optimizers)
    }

    /// Checks the settings with another `--mesh`.
    ///
    /// # Errors
    /// As [`Config::parse_with`].
    pub fn with_mesh(&self, mesh: &MeshShape) -> Result<Config, ConfigError> {
        let mut given = self.given.clone();
        let text = mesh.to_string().into();
        given.insert("mesh", GivenValue { text, source: SettingSource::CommandLine });
        resolve_config(given, &self.optimizers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> GivenSettings {
        let words = line.split(' ').map(OsString::from);
        GivenSettings::read(words, &Optimizers::default()).unwrap()
    }

    #[test]
    fn a_mesh_may_be_left_to_the_trainer() {
        let auto = |line: &str| settings(line).auto_mesh();
        assert_eq!(auto("t --mesh dp=2"), Ok(None));
        assert_eq!(auto("t"), Ok(None));
        let cpu = |ranks| Ok(Some(AutoMesh { ranks, device: DeviceChoice::Cpu }));
        assert_eq!(auto("t --mesh auto=8"), cpu(Some(8)));
        assert_eq!(auto("t --mesh auto"), cpu(None));
        let cuda = AutoMesh { ranks: None, device: DeviceChoice::Cuda };
        assert_eq!(auto("t --mesh auto --device cuda"), Ok(Some(cuda)));
        for text in ["auto=0", "auto=two", "auto8", "auto="] {
            let error = auto(&format!("t --mesh {text}")).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("--mesh: `{text}` is not a number of ranks; write for example `auto=8`")
            );
        }
    }

    #[test]
    fn a_chosen_mesh_replaces_the_request() {
        let settings = settings("t --mesh auto=4 --batch 8");
        let mesh: MeshShape = "fsdp=4".parse().unwrap();
        let config = settings.with_mesh(&mesh).unwrap();
        assert_eq!((config.mesh, config.batch), (mesh, 8));
        assert!(settings.resolve().unwrap_err().to_string().contains("Trainer::from_args"));
    }
}

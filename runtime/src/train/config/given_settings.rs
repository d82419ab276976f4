//! Settings as given, for which a mesh may still have to be chosen.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::mesh::MeshShape;

use super::given::{GivenMap, read_settings};
use super::given_value::GivenValue;
use super::kept_flags::add_kept_flags;
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
    /// `--explain`: the ranks do not run.
    pub explain: bool,
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
        let refuse = |message: String| {
            let source = Some(mesh.source.clone());
            Err(ConfigError::Invalid(vec![Problem { source, message }]))
        };
        if self.given.contains_key("preflight") {
            return refuse(format!(
                "--mesh: `{text}` is not compared by --preflight; name the axes of the run"
            ));
        }
        let device = match self.given.get("device").map(|given| given.text.to_string_lossy()) {
            Some(device) if device.trim() == "cuda" => DeviceChoice::Cuda,
            _ => DeviceChoice::Cpu,
        };
        let rest = rest.trim();
        let ranks = match rest.strip_prefix('=').map(|ranks| ranks.trim().parse()) {
            None if rest.is_empty() => None,
            Some(Ok(ranks @ 1..)) => Some(ranks),
            _ => {
                return refuse(format!(
                    "--mesh: `{text}` is not a number of ranks; write for example `auto=8`"
                ));
            }
        };
        let explain = self.given.get("explain").is_some_and(|given| given.text == "true");
        Ok(Some(AutoMesh { ranks, device, explain }))
    }

    /// Returns the path to resume from, if `--resume` is given, and true for `auto`: the folder of `--save`. `None` for
    /// a `--preflight`, which refuses the flag.
    pub fn resume(&self) -> Option<(PathBuf, bool)> {
        if self.given.contains_key("preflight") {
            return None;
        }
        let path = |name| {
            let path = PathBuf::from(&self.given.get(name)?.text);
            Some(path).filter(|path| !path.as_os_str().is_empty())
        };
        match path("resume")? {
            auto if auto.as_os_str() == "auto" => Some((path("save")?, true)),
            folder => Some((folder, false)),
        }
    }

    /// Adds the settings that the checkpoint in `folder` keeps, which are `saved`, by flag. Those that are given
    /// override them.
    ///
    /// # Errors
    /// Sizes that are given and differ from the saved ones, and settings that no run has saved.
    pub fn with_kept(mut self, folder: &Path, saved: &Value) -> Result<GivenSettings, ConfigError> {
        add_kept_flags(&mut self.given, folder, saved).map_err(ConfigError::Invalid)?;
        Ok(self)
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
    use crate::train::config::kept_flags;

    fn settings(line: &str) -> GivenSettings {
        let words = line.split(' ').map(OsString::from);
        GivenSettings::read(words, &Optimizers::default()).unwrap()
    }

    #[test]
    fn a_mesh_may_be_left_to_the_trainer() {
        let auto = |line: &str| settings(line).auto_mesh();
        assert_eq!(auto("t --mesh dp=2"), Ok(None));
        assert_eq!(auto("t"), Ok(None));
        let (device, explain) = (DeviceChoice::Cpu, false);
        let cpu = |ranks| Ok(Some(AutoMesh { ranks, device, explain }));
        assert_eq!(auto("t --mesh auto=8"), cpu(Some(8)));
        assert_eq!(auto("t --mesh auto"), cpu(None));
        let cuda = AutoMesh { ranks: None, device: DeviceChoice::Cuda, explain: true };
        assert_eq!(auto("t --mesh auto --device cuda --explain"), Ok(Some(cuda)));
        for text in ["auto=0", "auto=two", "auto8", "auto="] {
            let error = auto(&format!("t --mesh {text}")).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("--mesh: `{text}` is not a number of ranks; write for example `auto=8`")
            );
        }
    }

    /// Settings of a command line that resumes the run of another one.
    fn resumed(line: &str, saved: &str) -> Result<Config, String> {
        let saved = Config::parse(saved.split(' ')).unwrap();
        let saved = serde_json::to_value(kept_flags(&saved)).unwrap();
        let kept = settings(line).with_kept(Path::new("out/step-00000002"), &saved);
        kept.and_then(GivenSettings::resolve).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resumed_run_takes_the_saved_settings() {
        let saved = "t --mesh fsdp=2 --zero 1 --micro-batches 2 --hidden 64 --data /a --lr 1e-2 --steps 9 --seed 4";
        let expected = Config::parse(format!("{saved} --resume out").split(' ')).unwrap();
        assert_eq!(resumed("t --resume out", saved), Ok(expected.clone()));
        assert_eq!(resumed("t --resume out --mesh fsdp=2,dp=1 --hidden 64", saved), Ok(expected));
        // What depends on the mesh is that of the new one; micro-batches, on which results may depend, are kept.
        let line = "t --resume out --mesh dp=2 --lr 1 --steps 20 --data /b";
        let expected = format!("{line} --hidden 64 --seed 4 --micro-batches 2");
        let expected = Config::parse(expected.split(' ')).unwrap();
        assert_eq!(resumed(line, saved), Ok(expected));
        // A chosen mesh, and an optimizer with other settings.
        let saved = "t --mesh pp=2 --stages 2,2 --optimizer muon --momentum 0.5 --mesh-order pp";
        assert!(resumed("t --mesh cp=2 --cp ring --optimizer adamw", saved).is_ok());
        assert!(resumed("t --schedule gpipe --virtual-stages 1", saved).is_ok());
        // A schedule without an end, over one that has an end.
        let saved = "t --lr-schedule cosine --min-lr 1e-5";
        assert!(resumed("t --lr-schedule constant", saved).is_ok());
        assert_eq!(resumed("t --lr-schedule wsd", saved).unwrap().optimizer.lr.min, 1e-5);
        let saved = "t --mesh pp=2 --stages 2,2 --optimizer muon --momentum 0.5 --mesh-order pp";
        // A folder replaces sizes, and sizes a folder.
        assert!(resumed("t --init-from a --mesh 1", saved).is_ok());
        assert!(resumed("t --hidden 16 --mesh 1", "t --init-from a").is_ok());
    }

    #[test]
    fn other_sizes_than_the_saved_ones_are_named() {
        let saved = "t --hidden 64 --vocab 300 --ffn 8";
        let text =
            resumed("t --hidden 32 --vocab 300 --tied --ffn 16 --kv-heads 1", saved).unwrap_err();
        for part in [
            "the settings have 3 problems",
            "--hidden: 32, but 64 was saved in out/step-00000002; leave it out",
            "--ffn: 16, but 8 was saved",
            "--tied: true, but false was saved",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// Settings of another version, or forged ones.
    #[test]
    fn unknown_saved_settings_are_refused() {
        // What a run writes is no setting that a checkpoint keeps.
        for name in [
            "export-hf",
            "save",
            "metrics",
            "trace",
            "stage-times",
            "explain",
            "threads",
            "resume",
            "config",
        ] {
            let saved = serde_json::json!({ name: "true" });
            let text = settings("t").with_kept(Path::new("out"), &saved).unwrap_err().to_string();
            let expected =
                format!("the saved setting `{name}` is none that checkpoints of this version keep");
            assert!(text.contains(&expected), "{text}");
        }
        for (saved, expected) in [
            (serde_json::json!({ "other": "1" }), "the saved setting `other` is none"),
            (serde_json::json!({ "hidden": 64 }), "the saved setting `hidden` is none"),
            (serde_json::json!([]), "the saved settings are damaged"),
            (serde_json::json!({ "lr": "x" }), "as saved in out: --lr: must be"),
        ] {
            let kept = settings("t").with_kept(Path::new("out"), &saved);
            let text = kept.and_then(GivenSettings::resolve).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
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

//! Settings from command lines and configuration files, and all messages about them.

mod files;
mod flags;
mod local_sgd;
mod optimizer;
mod own_flags;
mod refusals;
mod resuming;
mod sharding;

use super::*;
use crate::data::{DocumentOptions, Encoding, Order};
use crate::mesh::MeshShape;
use crate::nn::{ContextStyle, RecomputeOverride};
use crate::tensor::ZeroStage;

fn parse(line: &str) -> Result<Config, ConfigError> {
    Config::parse(std::iter::once("train").chain(line.split_whitespace()))
}

/// The message of a command line that must be refused.
fn refusal(line: &str) -> String {
    match parse(line) {
        Err(error @ ConfigError::Invalid(_)) => error.to_string(),
        other => panic!("`{line}` gave {other:?}"),
    }
}

/// The outcome of a config file, which is called `run.toml` in its message.
fn with_file(text: &str, line: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.toml");
    std::fs::write(&path, text).unwrap();
    let config = ["train".into(), "--config".into(), path.clone().into_os_string()];
    let parsed = Config::parse(config.into_iter().chain(line.split_whitespace().map(Into::into)));
    match parsed {
        Ok(config) => {
            assert_eq!(config.config_file, Some(path));
            Ok(Config { config_file: None, ..config })
        }
        Err(error) => Err(error.to_string().replace(&path.display().to_string(), "run.toml")),
    }
}

/// The update rule with its hyperparameters.
fn rule_of(config: &Config) -> String {
    format!("{:?}", config.optimizer.rule())
}

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in:\n{text}");
}

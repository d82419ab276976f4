//! Names of the files of a folder.

/// The configuration.
pub const CONFIG: &str = "config.json";

/// The weights, if they are a single file.
pub const WEIGHTS: &str = "model.safetensors";

/// The index of several files of weights.
pub const INDEX: &str = "model.safetensors.index.json";
